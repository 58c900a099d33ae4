"""Training where environments are stepped in batches on the host: play an interval there, learn from it on the device.

All rows of all seeds step together, actors act in numpy from a copy of their matrices, and the accelerator gets one
transfer and one program per interval: store the transitions, make the updates they pay for. Nothing else crosses over.
With ``learner.overlap`` the host plays the next interval while that program runs, with the actors of one interval
before; which actors play is part of the state, so that numbers depend neither on timing nor on where a run was cut.
"""

import functools
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from prism_marl import envs
from prism_marl.buffers.ring import ring_bytes
from prism_marl.collect.compiled import seed_of
from prism_marl.collect.host_steps import EVALUATION, FIRST, WATCHING, collect, draw, episode_seeds, first_ended, play
from prism_marl.collect.numpy_policy import DensePolicy, NumpyActors
from prism_marl.envs.base import RowsEnv
from prism_marl.learners.matd3 import MATD3, MATD3Learner
from prism_marl.scene import Scene
from prism_marl.sharing.cluster import RECORDS
from prism_marl.sharing.host_svd import Call, call_now
from prism_marl.training.trainer import SeedState, Trainer, TrainState, with_beginnings
from prism_marl.training.vector_learning import Learning

SIDE_BY_SIDE = 20  # episodes of one seed at once while evaluating, as in the reference; the first to end count


class VectorState(TrainState):
    """Everything that must survive a kill."""

    updates: Int[Array, ""]  # critic updates of every seed
    renewed: Int[Array, ""]  # environment step at which a critic last got a fresh start
    simulator: dict[str, np.ndarray]  # where the rows stand
    acting: DensePolicy | None  # actors that will play next; None: those of ``seeds``


@dataclass(frozen=True)
class VectorTrainer(Trainer):
    """Training of one experiment with MATD3 in a batch of environments on the host."""

    env: RowsEnv  # pyright: ignore[reportIncompatibleVariableOverride]
    pool: dict[int, RowsEnv] = field(default_factory=dict, compare=False, repr=False)  # for evaluation, by rows
    programs: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # compiled by ``warm``
    eager: ClassVar[tuple[str, ...]] = ("init", "learn", "collect", "evaluate", "prepare", "refresh", "spectra")

    @property
    def settings(self) -> MATD3:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.experiment.learner  # pyright: ignore[reportReturnType]

    @property
    def learner(self) -> MATD3Learner:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.settings.learner(self.experiment.sharing, self.env.spec, self.experiment.network.width)

    @property
    def warmup(self) -> int:
        return self.settings.warmup

    @cached_property
    def _learning(self) -> Learning:
        return Learning(self.learner, self.experiment.run.envs)

    @property
    def _seeds(self) -> range:
        run = self.experiment.run
        return range(run.seed, run.seed + run.seeds)

    def init(self, call: Call = call_now) -> VectorState:
        """Fresh state of all seeds."""
        starts = episode_seeds(FIRST, self._seeds, 0, (self.experiment.run.envs,)).reshape(-1)
        self.env.reset(np.arange(self.env.number), starts)
        seeds = self._learning.init(self._numbers(), call)
        zeros = [jnp.zeros((), jnp.int32) for _ in range(6)]  # not one six times: they are donated
        parts: tuple[Any, ...] = (seeds, *zeros, self.env.snapshot(), self._lagging(seeds))
        return VectorState(*parts)

    def shapes(self) -> VectorState:
        """The state without its numbers: what checkpoints are read into."""
        seeds = jax.eval_shape(lambda: self._learning.init(self._numbers()))
        acting = jax.eval_shape(self._learning.plain, seeds) if self.settings.overlap else None
        parts: tuple[Any, ...] = (
            seeds,
            *[jax.ShapeDtypeStruct((), jnp.int32)] * 6,
            self.env.snapshot(),
            jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), acting),
        )
        return with_beginnings(VectorState(*parts))

    def advance(self, state: VectorState, target: Any, *, learn: bool) -> VectorState:  # pyright: ignore
        """Play and learn until every seed has taken ``target`` environment steps. Consumes the state."""
        name, settings, learner = "learn" if learn else "collect", self.settings, self.learner
        self.warm(name, state)
        program, acting, stored = self.programs[name], NumpyActors(learner), learner.empty_transition()
        self.env.restore(state.simulator)
        overlap, fresh, layers = learn and settings.overlap, [], None
        if learn:
            fresh = [self._plain(state.seeds)]
            layers = state.acting or self._copied(fresh[0])
        seeds, counters, iteration = state.seeds, _counters(state), int(state.iteration)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="learning") as aside:
            # A branch inside the program makes its caller wait for it, so overlapping takes a thread.
            waiting: Future[Any] | None = None
            while iteration * self._learning.interval < int(target):
                length, envs = settings.train_interval, self.experiment.run.envs
                draws = draw(self.env.spec, self._seeds, iteration, length, envs, uniform=not learn)
                act = functools.partial(acting, layers) if layers else None
                block = collect(self.env, stored, draws, act, settings.explore)
                if waiting is not None:
                    seeds, counters, *fresh = waiting.result()
                if overlap:  # the actors that come out of this block play the interval after the next
                    layers = self._copied(fresh[0])
                    waiting = aside.submit(program, seeds, counters, jax.device_put(block))
                else:
                    # All of it: an allocation that failed is only reported that way.
                    seeds, counters, *fresh = jax.block_until_ready(program(seeds, counters, jax.device_put(block)))
                    layers = self._copied(fresh[0]) if learn else None
                iteration += 1
            if waiting is not None:
                seeds, counters, *_ = waiting.result()
        playing = layers if overlap else state.acting
        iterations, summed, updates, renewed = counters
        stops = (state.prepared, state.refreshed)
        parts: tuple[Any, ...] = (seeds, iterations, summed, *stops, updates, renewed, self.env.snapshot(), playing)
        return VectorState(*parts)

    def warm(self, name: str, state: VectorState) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Compile the program that follows an interval."""
        if name in ("learn", "collect") and name not in self.programs:
            function = self._learning.learn if name == "learn" else self._learning.store
            program = jax.jit(function, donate_argnums=(0, 1))
            block = self._learning.block(self.experiment.run.seeds)
            self.programs[name] = program.lower(state.seeds, _counters(state), block).compile()

    def prepare(self, state: VectorState) -> VectorState:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Let the sharing method look at the data collected so far, once."""
        seeds = self._change(state, "prepare") if self.prepares else state.seeds
        return self._replaced(state, seeds, "prepared", jnp.ones((), jnp.int32))

    def refresh(self, state: VectorState) -> VectorState:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Resets and re-clustering of the sharing method."""
        seeds = self._change(state, "refresh")
        return self._replaced(state, seeds, "refreshed", jnp.min(seeds.steps))

    def _replaced(self, state: VectorState, seeds: SeedState, counter: str, value: Array) -> VectorState:
        places = lambda s: (s.seeds, getattr(s, counter), s.acting)  # noqa: E731
        return eqx.tree_at(places, state, (seeds, value, self._lagging(seeds)), is_leaf=lambda leaf: leaf is None)

    def _change(self, state: VectorState, name: str) -> SeedState:
        change = getattr(self.experiment.sharing, name)
        number = min(self.settings.buffer, max(1, RECORDS // self.env.spec.agents))

        def one(seed: SeedState, iteration) -> SeedState:
            key = jax.random.fold_in(jax.random.fold_in(seed.key, 2**31 - 1), iteration)
            valid = jnp.arange(number) < seed.replay.count
            experience = self.learner.experience(seed.replay.newest(number), valid)
            agent = change(seed.learner.online.agent, experience, key)
            # Labels and node masks are not learned, so the target has them at once; weights follow as always.
            target = eqx.combine(eqx.filter(seed.learner.target.agent, eqx.is_inexact_array), agent)
            return eqx.tree_at(lambda s: (s.learner.online.agent, s.learner.target.agent), seed, (agent, target))

        return jax.jit(jax.vmap(one, (0, None)), donate_argnums=0)(state.seeds, state.iteration)

    def spectra(self, state: VectorState) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Masked singular values and masks of every factorised layer."""
        return self._spectra(state.seeds)

    @cached_property
    def _spectra(self) -> Any:
        return jax.jit(lambda seeds: Trainer.spectra(self, TrainState(seeds, *[jnp.zeros(())] * 4)))

    @cached_property
    def _plain(self) -> Any:
        return jax.jit(self._learning.plain)

    def _copied(self, layers: DensePolicy) -> DensePolicy:
        return jax.tree.map(np.ascontiguousarray, jax.device_get(layers))

    def _lagging(self, seeds: SeedState) -> DensePolicy | None:
        return self._copied(self._plain(seeds)) if self.settings.overlap else None

    def evaluate(self, state: VectorState, evaluation: Any) -> dict[str, Any]:  # pyright: ignore
        """Episodes without noise until enough have ended; means over those, one number per seed."""
        run, width = self.experiment.run, min(SIDE_BY_SIDE, self.experiment.run.eval_episodes)
        starts = episode_seeds(EVALUATION, self._seeds, int(evaluation), (width, run.eval_episodes))
        act = functools.partial(NumpyActors(self.learner), self._copied(self._plain(state.seeds)))
        playing = play(self._rows(run.seeds * width), act, starts)
        ended = first_ended(playing, run.seeds, run.eval_episodes)
        return {name: np.array([np.mean([row[name] for row in rows]) for rows in ended]) for name in ended[0][0]}

    def watch(self, state: VectorState, *, seed: int, number: int) -> tuple[list[Scene], float]:  # pyright: ignore
        """One episode without noise as drawings and its return; no drawings where the environment has none."""
        env = self._rows(1)
        starts = episode_seeds(WATCHING, self._seeds[seed : seed + 1], number, (1, 1))
        env.reset(np.arange(1), starts[0, 0])
        first = env.scene(0)
        if first is None:
            return [], 0.0
        layers = jax.tree.map(lambda leaf: leaf[None], seed_of(self._plain(state.seeds), seed))
        scenes: list[Any] = [first]
        for finished in play(env, functools.partial(NumpyActors(self.learner), self._copied(layers)), starts):
            scenes.append(env.scene(0))
            if finished:
                return scenes, finished[0].values["return"]
        raise AssertionError("play never ends by itself")

    def _rows(self, number: int) -> RowsEnv:
        if number not in self.pool:
            self.pool[number] = envs.make_vector(self.experiment.task, number, patience=self.experiment.run.patience)
        return self.pool[number]

    def replay_bytes(self) -> int:
        """Memory of the rings of all seeds."""
        return self.experiment.run.seeds * ring_bytes(self.learner.empty_transition(), self.settings.buffer)

    def dropped(self) -> int | None:
        """Episodes lost so far with a game that died or hung; None where none can be."""
        counts = [getattr(env, "dropped", None) for env in (self.env, *self.pool.values())]
        return sum(count for count in counts if count is not None) if counts[0] is not None else None

    def close(self) -> None:
        """Close all environments; nothing can be played afterwards."""
        for env in (self.env, *self.pool.values()):
            env.close()
        self.pool.clear()


def _counters(state: VectorState):
    return (state.iteration, state.summed, state.updates, state.renewed)
