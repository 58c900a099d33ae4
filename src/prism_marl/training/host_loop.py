"""The Python loop of training where rows live on the host: play there, learn on the device.

The device gets one transfer and one program for each collection: store it, make the updates it pays for. With
``Collection.overlap`` the host plays the next collection while that program runs, with the policy of one collection
before; which policy plays is part of the state, so that numbers depend neither on timing nor on where a run was cut.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.collect.base import Summary
from prism_marl.learners.base import Clock, Mode, Trajectory
from prism_marl.learners.log import GIVEN
from prism_marl.training.compiling import compile_aside
from prism_marl.training.state import SeedState, TrainState, mode_of

if TYPE_CHECKING:
    from prism_marl.training.trainer import Trainer


class HostLoop:
    """The loop of one trainer and the programs it calls."""

    def __init__(self, trainer: "Trainer"):
        self.trainer, self.learner, self.collector = trainer, trainer.learner, trainer.collector
        self._programs: dict[bool, Any] = {}  # what follows a collection, by whether it learns

    @property
    def overlaps(self) -> bool:
        """Whether the host plays on while the device learns; only a policy in numpy leaves the device alone."""
        return self.learner.collection.overlap and self._numpy

    @property
    def _numpy(self) -> bool:
        return self.learner.numpy() is not None

    def advance(self, state: TrainState, target: int, *, learn: bool) -> TrainState:
        """Collect and update until every seed has taken ``target`` environment steps. Consumes the state."""
        self.warm(state, learn=learn)
        program, acts = self._programs[learn], learn and self._numpy
        self.collector.restore(state.snapshot)
        seeds, clock, overlap = released(state.seeds, self.trainer.opened), state.clock, learn and self.overlaps
        steps, iteration = np.array(seeds.steps), int(clock.iteration)
        fresh = self.policy_program(seeds.state) if acts else None
        policy = (state.acting or copied(fresh)) if acts else None

        def learned(*given: Any) -> tuple[SeedState, Clock, Any]:
            """Policies come from the same program as at the start: computed inside ``program`` they could have other
            last bits, and numbers would depend on where a run was cut."""
            seeds, clock = program(*given)
            return seeds, clock, self.policy_program(seeds.state) if acts else None

        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="learning") as aside:
            # A branch inside the program makes its caller wait for it, so overlapping takes a thread.
            waiting: Future[Any] | None = None
            while steps.min() < target:
                played = self._collect(seeds, clock, iteration, policy, mode_of(learn))
                if waiting is not None:
                    seeds, clock, fresh = waiting.result()
                given = (seeds, clock, *jax.device_put(played))
                if overlap:  # the policies that come out of this collection play the one after the next
                    policy = copied(fresh)
                    waiting = aside.submit(learned, *given)
                else:
                    # All of it: an allocation that failed is only reported that way.
                    seeds, clock, fresh = jax.block_until_ready(learned(*given))
                    policy = copied(fresh) if acts else None
                steps, iteration = steps + played[2].steps, iteration + 1
            if waiting is not None:
                seeds, clock, _ = waiting.result()
        acting = policy if overlap else state.acting
        seeds = released(seeds, self.trainer.closed)
        return TrainState(seeds, clock, state.prepared, state.refreshed, acting, self.collector.snapshot())

    def warm(self, state: TrainState, *, learn: bool) -> None:
        """Compile the program that follows a collection."""
        if learn in self._programs:
            return
        trainer = self.trainer

        def follow(
            seeds: SeedState, clock: Clock, env: Any, batch: Trajectory, summary: Summary
        ) -> tuple[SeedState, Clock]:
            return trainer.absorb(seeds, clock, env, batch, summary, learn=learn)

        program, seeds = jax.jit(follow, donate_argnums=(0, 1)), jax.eval_shape(trainer.opened, state.seeds)
        self._programs[learn] = compile_aside(program.lower(seeds, state.clock, *self._shapes(state)))

    def playing_policy(self, states: Any) -> Any:
        """The policies of all seeds where they are played."""
        found = self.policy_program(states)
        return copied(found) if self._numpy else found

    @cached_property
    def policy_program(self) -> Any:
        return jax.jit(self.trainer.policies)

    @cached_property
    def _keys_program(self) -> Any:
        return jax.jit(lambda states, clock: self.trainer.keys(states, clock)[1])

    def _collect(
        self, seeds: SeedState, clock: Clock, iteration: int, policy: Any, mode: Mode
    ) -> tuple[Any, Trajectory, Summary]:
        """One collection. A policy in numpy is given; any other is taken from the state, which then must be at rest."""
        keys, steps, numbered = None, None, clock._replace(iteration=np.int32(iteration))  # pyright: ignore[reportArgumentType]
        if not (self._numpy and self.learner.collection.unit == "steps"):
            keys, steps = self._keys_program(seeds.state, clock), seeds.steps
        if not self._numpy:
            policy = self.policy_program(seeds.state)
        return self.collector.collect(self.learner, policy, seeds.env, keys, steps, numbered, mode)

    def _shapes(self, state: TrainState) -> tuple[Any, Trajectory, Summary]:
        """Shapes of what one collection brings."""
        seeds, rows, env = state.seeds.steps.shape[0], self.learner.rows, state.seeds.env
        batch = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((seeds, leaf.shape[0], rows, *leaf.shape[1:]), leaf.dtype),
            self.learner.template(),
        )
        taken: Any = jax.ShapeDtypeStruct((seeds,), jnp.int32)
        flags: Any = dict.fromkeys(GIVEN, jax.ShapeDtypeStruct((seeds,), bool))
        return env, batch._replace(memory=env), Summary(taken, flags)


def released(seeds: SeedState, change: Callable[[SeedState], SeedState]) -> SeedState:
    """The seeds as ``change`` makes them, ``opened`` or ``closed``. That copies a buffer whose axes change, so it is no
    part of what follows each collection. The old one is given back."""
    changed = change(seeds)
    for old, new in zip(jax.tree.leaves(seeds.buffer), jax.tree.leaves(changed.buffer), strict=True):
        if new is not old and isinstance(old, jax.Array):
            jax.block_until_ready(new)
            old.delete()
    return changed


def copied(policy: Any) -> Any:
    """A policy on the host."""
    return jax.tree.map(np.ascontiguousarray, jax.device_get(policy))
