"""Training of one experiment: a learner, a collector, and all seeds side by side.

All seeds train along the first axis of ``TrainState.seeds``. Counters that are the same for all seeds stand outside
that axis, so that "is it time to update?" is one scalar question and never computes both answers.
"""

import functools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from prism_marl.collect.base import Collector, Rule, Summary, seed_numbers
from prism_marl.collect.visits import as_dict, visits
from prism_marl.experiment.experiment import Experiment
from prism_marl.learners.base import Clock, Learner, Signalling, Trajectory
from prism_marl.learners.conflict import agent_gradients, compared, cosines
from prism_marl.learners.log import Log, empty_log
from prism_marl.learners.seeds import map_seeds, with_axis, without_axis
from prism_marl.scene import Scene
from prism_marl.sharing import role_layers
from prism_marl.sharing.base import Sharing
from prism_marl.sharing.host_svd import Call, call_now, draw
from prism_marl.training.compiling import quick_options
from prism_marl.training.host_loop import HostLoop
from prism_marl.training.state import SeedState, TrainState, fresh_counter, mode_of, with_partial_buffers

ROWS_START = 0x0B5  # apart from the keys of training and evaluation


@dataclass(frozen=True)
class Trainer:
    """One loop for every learner and every place where environments live.

    Where the collector can be compiled, ``advance`` is one program that collects and updates; otherwise it is the loop
    of ``host_loop``.
    """

    experiment: Experiment
    learner: Learner
    collector: Collector

    @property
    def eager(self) -> tuple[str, ...]:
        """Calls that run in Python because rows live there."""
        calls = ("learn", "collect", "evaluate", "prepare", "refresh", "spectra", "measure")
        return () if self.collector.compiled else calls

    @property
    def warmup(self) -> int:
        """Environment steps with random actions before learning."""
        return self.learner.collection.warmup

    @property
    def extra(self) -> int:
        """Environment steps on top of the budget: that warm-up, where the learner counts it so."""
        return self.warmup if self.learner.collection.warmup_on_top else 0

    def _numbers(self) -> Int[Array, " seeds"]:
        return seed_numbers(self.experiment.run.seed, self.experiment.run.seeds)

    def init(self, call: Call = call_now) -> TrainState:
        """Fresh state of all seeds."""
        seeds, compiled = self._fresh(call), self.collector.compiled
        if self._by_steps:
            seeds = _with_env(seeds, call("rows", self._start, seeds.state) if compiled else self._start(seeds.state))
        return TrainState(seeds, *self._counters(), self._policy_behind(seeds), self.collector.snapshot())

    def shapes(self) -> TrainState:
        """The state without its numbers: what checkpoints are read into. What belongs to the host stays numpy."""
        seeds = jax.eval_shape(lambda: self._fresh(call_now))
        if self._by_steps:
            seeds = _with_env(seeds, jax.eval_shape(self._start, seeds.state))
        acting = jax.eval_shape(self.policies, seeds.state) if self._overlaps else None
        acting = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), acting)
        clock, prepared, refreshed = jax.eval_shape(self._counters)
        state = TrainState(seeds, clock, prepared, refreshed, acting, self.collector.snapshot())
        return with_partial_buffers(state)

    def _counters(self) -> tuple[Clock, Array, Array]:
        """The clock, and the counters of the sharing method's own stops."""
        return Clock(fresh_counter(), fresh_counter(), self.learner.counters()), fresh_counter(), fresh_counter()

    def _fresh(self, call: Call) -> SeedState:
        names = (self.learner.metrics, self.learner.checks)  # asked first: it traces networks, as ``draw`` itself does

        def one(key: Key[Array, ""]) -> SeedState:
            zero = jnp.zeros((), jnp.int32)
            return SeedState(self.learner.init(key), self.learner.buffer(), (), zero, empty_log(*names))

        return draw(one, jax.vmap(jax.random.key)(self._numbers()), call)

    @property
    def _by_steps(self) -> bool:
        return self.learner.collection.unit == "steps"

    @property
    def _overlaps(self) -> bool:
        return not self.collector.compiled and self._host.overlaps

    def _start(self, states: Any) -> Any:
        """Rows of "steps" at their first observation."""
        keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(number), ROWS_START))(self._numbers())
        return self.collector.reset(self.learner, self.policies(states), keys)

    def policies(self, states: Any) -> Any:
        """What acts, of all seeds."""
        return map_seeds(self.learner.policy)(states)

    def advance(self, state: TrainState, target: Any, *, learn: bool) -> TrainState:
        """Collect and update until every seed has taken ``target`` environment steps. Consumes the state."""
        if not self.collector.compiled:
            return self._host.advance(state, int(target), learn=learn)

        def unfinished(state: TrainState):
            return jnp.min(state.seeds.steps) < target

        begin = eqx.tree_at(lambda s: s.seeds, state, self.opened(state.seeds))
        end = jax.lax.while_loop(unfinished, lambda state: self._iterate(state, learn), begin)
        return eqx.tree_at(lambda s: s.seeds, end, self.closed(end.seeds))

    @property
    def _buffer_axis(self) -> int | None:
        return 0 if self.experiment.run.seeds > 1 else None

    def opened(self, seeds: SeedState) -> SeedState:
        """The seeds as a loop carries them: the buffer of a single seed without its axis. If it were taken away and put
        back in every iteration, XLA would store into two copies of the whole buffer."""
        return seeds if self._buffer_axis == 0 else _with_buffer(seeds, without_axis(seeds.buffer))

    def closed(self, seeds: SeedState) -> SeedState:
        """The opposite of ``opened``."""
        return seeds if self._buffer_axis == 0 else _with_buffer(seeds, with_axis(seeds.buffer))

    def _iterate(self, state: TrainState, learn: bool) -> TrainState:
        """One collection and the updates it pays for, as part of a program."""
        seeds, clock = state.seeds, state.clock
        _, keys = self.keys(seeds.state, clock)
        policies, mode = self.policies(seeds.state), mode_of(learn)
        env, batch, summary = self.collector.collect(self.learner, policies, seeds.env, keys, seeds.steps, clock, mode)
        seeds, clock = self.absorb(seeds, clock, env, batch, summary, learn=learn)
        return TrainState(seeds, clock, state.prepared, state.refreshed, state.acting, state.snapshot)

    def keys(self, states: Any, clock: Clock) -> tuple[Any, Key[Array, " n"]]:
        """The states after a key for a collection was taken, and these keys."""
        return map_seeds(lambda state: self.learner.key(state, clock, "collect"))(states)

    def absorb(
        self, seeds: SeedState, clock: Clock, env: Any, batch: Trajectory, summary: Summary, *, learn: bool
    ) -> tuple[SeedState, Clock]:
        """Store a collection, count its steps, and make the updates that it pays for; of ``opened`` seeds."""
        states, _ = self.keys(seeds.state, clock)
        clock = clock._replace(iteration=clock.iteration + 1)

        def count(steps: Array, log: Log, summary: Summary) -> tuple[Array, Log]:
            steps = steps + summary.steps
            return steps, log.check(summary.finite, steps)

        held = self._buffer_axis
        buffer = map_seeds(self.learner.add, (held, 0), held)(seeds.buffer, batch)
        steps, log = map_seeds(count, out_axes=(0, 0))(seeds.steps, seeds.log, summary)
        if learn:
            update = map_seeds(self.learner.update, (0, held, 0, 0, 0, None), (0, 0, None))
            states, log, clock = update(states, buffer, batch, log, steps, clock)
        return SeedState(states, buffer, env, steps, log), clock

    @functools.cached_property
    def _host(self) -> HostLoop:
        return HostLoop(self)

    def warm(self, name: str, state: TrainState) -> None:
        """Compile the program that follows a collection on the host; a compiled collector needs none."""
        if not self.collector.compiled and name in ("learn", "collect"):
            self._host.warm(state, learn=name == "learn")

    def evaluate(self, state: TrainState, evaluation: Any) -> dict[str, Any]:
        """Greedy episodes of every seed; means over episodes, one number per seed."""
        run = self.experiment.run
        policy = self._playing_policy(state)
        return self.collector.evaluate(self.learner, policy, evaluation, run.eval_episodes, self.rule)

    @property
    def rule(self) -> Rule:
        """Which episodes an evaluation counts."""
        rule = self.experiment.run.eval_rule
        return self.experiment.learner.eval_rule if rule == "learner" else rule

    def watch(
        self, state: TrainState, *, seed: int, number: int, states: list[Any] | None = None
    ) -> tuple[list[Scene], float]:
        """One greedy episode as drawings and its return; no drawings where the environment has none."""
        return self.collector.watch(self.learner, self._playing_policy(state), seed, number, states)

    def _playing_policy(self, state: TrainState) -> Any:
        """The policies of all seeds, where they are played."""
        states = state.seeds.state
        return self.policies(states) if self.collector.compiled else self._host.playing_policy(states)

    def _policy_behind(self, seeds: SeedState) -> Any:
        return self._host.playing_policy(seeds.state) if self._overlaps else None

    @property
    def prepares(self) -> bool:
        """Whether the sharing method looks at data at all."""
        return type(self.experiment.sharing).prepare is not Sharing.prepare

    def prepare(self, state: TrainState) -> TrainState:
        """Let the sharing method look at the data collected so far, once."""
        seeds = self._changed(state, "prepare") if self.prepares else state.seeds
        return self._with_seeds(state, seeds, prepared=jnp.ones((), jnp.int32))

    def refresh(self, state: TrainState) -> TrainState:
        """Resets and re-clustering of the sharing method."""
        seeds = self._changed(state, "refresh")
        return self._with_seeds(state, seeds, refreshed=jnp.min(seeds.steps))

    def with_states(self, state: TrainState, states: Any) -> TrainState:
        """The same with other states of the learner, one for each seed."""
        old = state.seeds
        return self._with_seeds(state, SeedState(states, old.buffer, old.env, old.steps, old.log))

    def _with_seeds(self, state: TrainState, seeds: SeedState, **counters: Any) -> TrainState:
        found = {"prepared": state.prepared, "refreshed": state.refreshed} | counters
        acting = self._policy_behind(seeds)
        return TrainState(seeds, state.clock, found["prepared"], found["refreshed"], acting, state.snapshot)

    def _changed(self, state: TrainState, name: str) -> SeedState:
        """The seeds after the sharing method changed their agents. Labels and node masks are not learned, so targets
        have them at once; weights follow as always."""
        change, learner = getattr(self.experiment.sharing, name), self.learner

        def one(seed: SeedState, clock: Clock) -> SeedState:
            after, key = learner.key(seed.state, clock, "change")
            agent = change(learner.agent(after), learner.experience(seed.buffer), key)
            return SeedState(learner.with_agent(after, agent), seed.buffer, seed.env, seed.steps, seed.log)

        changed = map_seeds(one, (0, None))
        if self.collector.compiled:
            return changed(state.seeds, state.clock)
        return jax.jit(changed, donate_argnums=0)(state.seeds, state.clock)

    def spectra(self, state: TrainState) -> dict[str, Any]:
        """Masked singular values and masks of every factorised layer: name -> ([seeds, m, r], [seeds, m, r])."""
        return self._spectra(state.seeds.state)

    @functools.cached_property
    def _spectra(self) -> Any:
        def one(state):
            found = {name: layer.spectrum() for name, layer in role_layers(self.learner.agent(state)).items()}
            return {name: values for name, values in found.items() if values is not None}

        return jax.jit(map_seeds(one))

    def measure(self, state: TrainState, evaluation: Any, episodes: int | None = None) -> dict[str, Any]:
        """A few episodes of every seed, and how far the agents' gradients on them point in the same direction:
        layer -> [seeds, k, k], for learners that say what agents learn from."""
        states, policy = state.seeds.state, self._playing_policy(state)
        number = visits(self.learner.spec) if episodes is None else episodes
        seen = self.collector.visit(self.learner, policy, evaluation, state.seeds.steps, number)
        if self.learner.template().agent_reward is None:  # agents learn from the team's, whatever the task has
            seen = seen._replace(agent_reward=None)
        return {"episodes": as_dict(seen), "cosines": self._cosines(states, seen)}

    @functools.cached_property
    def _cosines(self) -> Any:
        learner = self.learner

        def one(state: Any, seen: Trajectory) -> dict[str, Array]:
            if not isinstance(learner, Signalling):
                return {}
            some = jnp.asarray(compared(learner.spec.agents))
            return cosines(agent_gradients(learner.signal(state, seen), learner.agent(state), some))

        # Part of a larger program where rows are compiled, which then has the options.
        return jax.jit(map_seeds(one), compiler_options=None if self.collector.compiled else quick_options())

    def buffer_bytes(self) -> int:
        """Memory of the buffers of all seeds, known before anything is allocated."""
        shapes = jax.tree.leaves(jax.eval_shape(self.learner.buffer))
        return self.experiment.run.seeds * sum(leaf.size * leaf.dtype.itemsize for leaf in shapes)

    def dropped(self) -> int | None:
        """Episodes lost so far with a game that died or hung; None where none can be."""
        return self.collector.dropped()

    def close(self) -> None:
        """Let go of whatever the environments hold."""
        self.collector.close()


def _with_buffer(seeds: SeedState, buffer: Any) -> SeedState:
    return SeedState(seeds.state, buffer, seeds.env, seeds.steps, seeds.log)


def _with_env(seeds: SeedState, env: Any) -> SeedState:
    return SeedState(seeds.state, seeds.buffer, env, seeds.steps, seeds.log)
