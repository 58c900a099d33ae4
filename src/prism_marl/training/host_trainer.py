"""Training in environments that live in Python: one loop plays the episodes of all seeds side by side.

Only playing happens here. Acting, storing and updating are the functions that ``Trainer`` compiles, called from Python
as three programs: ``begin`` (what a round of episodes needs), ``act`` (one step of all episodes at once) and ``absorb``
(store the episodes, make the updates they pay for). Seeds of episodes come from the keys in the training state, so that
a resumed run plays the episodes that an uninterrupted one would have played.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from prism_marl.collect.compiled import Summary, materialise, seed_of
from prism_marl.collect.host_episodes import HostRollout
from prism_marl.envs.base import PythonEnv, dropped
from prism_marl.learners.qmix import Episode
from prism_marl.networks.recurrent import RecurrentAgent
from prism_marl.scene import Scene
from prism_marl.training.trainer import Trainer, TrainState, evaluation_key, summarise

SIDE_BY_SIDE = 16  # greedy episodes of one seed at once, where training plays fewer; each needs its own environment


class Round(NamedTuple):
    """What a round of episodes needs; the first axis of everything is the seed."""

    agents: RecurrentAgent  # with one plain matrix per identity
    keys: Key[Array, " n"]  # of the actions
    starts: Int[Array, "n b"]  # seeds for ``HostEnv.reset``
    epsilon: Float[Array, " n"]


@dataclass(frozen=True)
class HostTrainer(Trainer):
    """Training of one experiment in a Python environment: everything that plays is replaced, all else inherited."""

    env: PythonEnv  # pyright: ignore[reportIncompatibleVariableOverride]
    build: Callable[[], PythonEnv]
    pool: list[PythonEnv] = field(default_factory=list, compare=False, repr=False)  # copies, built when first needed
    programs: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # compiled by ``warm``
    eager: ClassVar[tuple[str, ...]] = ("learn", "collect", "evaluate")

    def warm(self, name: str, state: TrainState) -> None:
        """Play a round for nothing and compile what follows it."""
        if name in ("learn", "collect") and name not in self.programs:
            absorb = jax.jit(lambda *arguments: self._absorb(*arguments, learn=name == "learn"), donate_argnums=0)
            self.programs[name] = absorb.lower(state, *self.collect(state)).compile()

    def advance(self, state: TrainState, target: Int[Array, ""] | int, *, learn: bool) -> TrainState:
        """Collect and update until every seed has taken ``target`` environment steps. Consumes the state."""
        name = "learn" if learn else "collect"
        self.warm(name, state)
        absorb = self.programs[name]
        while np.asarray(state.seeds.steps).min() < int(target):
            # All of it, although the count of steps would do: an allocation that failed is only reported that way.
            state = jax.block_until_ready(absorb(state, *self.collect(state)))
        return state

    def collect(self, state: TrainState) -> tuple[Episode, Summary, Key[Array, " n"]]:
        """Episodes [seeds, envs, t, ...] by the present networks, and the keys that come after them."""
        seeds = state.seeds
        plan, keys = self._begin(seeds.learner.online.agent, seeds.key, seeds.steps)
        return *self._play(plan, plan.starts), keys

    def evaluate(self, state: TrainState, evaluation: Int[Array, ""] | int) -> dict[str, Array]:
        """Greedy episodes of every seed; means over episodes, one number per seed."""
        total = self.experiment.run.eval_episodes
        width = min(total, max(self.experiment.run.envs, SIDE_BY_SIDE))
        plan = self._begin_evaluation(state.seeds.learner.online.agent, jnp.int32(evaluation))
        rounds = []
        for first in range(0, total, width):
            starts = np.asarray(plan.starts)[:, first : first + width]
            number = starts.shape[1]
            starts = np.pad(starts, ((0, 0), (0, width - number)))  # a shorter round would be compiled again
            _, summary = self._play(plan, starts, number)  # greedy play draws nothing, so rounds may share their keys
            rounds.append(jax.tree.map(lambda leaf, number=number: leaf[:, :number], summary))
        return _of_those_played(jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *rounds))

    def watch(self, state: TrainState, *, seed: int, number: int) -> tuple[list[Scene], float]:
        """One greedy episode as drawings and its return; no drawings where the environment has none."""
        agents = jax.tree.map(lambda leaf: leaf[None], seed_of(state.seeds.learner.online.agent, seed))
        plan = self._plan(agents, self._watch_key(seed, number)[None], jnp.zeros(1), 1)
        scenes: list[Scene | None] = []
        _, summary = self._play(plan, plan.starts, scenes=scenes)
        return [scene for scene in scenes if scene is not None], float(np.nan_to_num(summary.returns[0, 0]))

    def dropped(self) -> int:
        """Episodes lost so far with a game that died or hung."""
        return dropped((self.env, *self.pool))

    def close(self) -> None:
        """Close all environments; nothing can be played afterwards."""
        for env in (self.env, *self.pool):
            env.close()
        self.pool.clear()

    def _play(self, plan: Round, starts: Any, number: int | None = None, scenes: list[Scene | None] | None = None):
        """Play until the last episode is over; ``scenes`` collects drawings of the first one."""
        starts = np.asarray(starts)
        hosts = self._hosts(starts.size)
        rollout = HostRollout(hosts, self.learner, starts, starts.shape[1] if number is None else number)
        hidden = plan.agents.initial(*starts.shape, self.env.spec.agents)
        action = np.full((*starts.shape, self.env.spec.agents), -1, np.int32)
        while True:
            if scenes is not None:
                scenes.append(hosts[0].scene())
            if not rollout.alive.any():
                return rollout.result()
            # The program may read numpy's own memory, which the next step overwrites: wait until it is done.
            hidden, chosen = jax.block_until_ready(
                self._act(plan.agents, hidden, rollout.obs, action, plan.keys, np.int32(rollout.clock), plan.epsilon)
            )
            action = np.asarray(chosen)
            rollout.step(action)

    def _hosts(self, number: int) -> list[PythonEnv]:
        while len(self.pool) < number - 1:
            self.pool.append(self.build())
        return [self.env, *self.pool][:number]

    def _plan(self, agents: RecurrentAgent, keys: Key[Array, " n"], epsilon: Float[Array, " n"], number: int) -> Round:
        def start(key):
            key_reset, key_steps = jax.random.split(key)
            return key_steps, jax.random.bits(key_reset, (number,)) >> 1  # 31 bits: every seeding function takes them

        return Round(jax.vmap(materialise)(agents), *jax.vmap(start)(keys), epsilon)

    @cached_property
    def _begin(self) -> Any:
        def begin(agents, keys, steps) -> tuple[Round, Key[Array, " n"]]:
            split = jax.vmap(jax.random.split)(keys)
            epsilon = jax.vmap(self.learner.epsilon)(steps)
            return self._plan(agents, split[:, 1], epsilon, self.experiment.run.envs), split[:, 0]

        return jax.jit(begin)

    @cached_property
    def _begin_evaluation(self) -> Any:
        def begin(agents, evaluation) -> Round:
            keys = jax.vmap(evaluation_key, (0, None))(self._numbers(), evaluation)
            return self._plan(agents, keys, jnp.zeros(keys.shape), self.experiment.run.eval_episodes)

        return jax.jit(begin)

    @cached_property
    def _act(self) -> Any:
        def act(agents, hidden, obs, last_action, keys, clock, epsilon):
            keys = jax.vmap(jax.random.fold_in, (0, None))(keys, clock)
            hidden, action = jax.vmap(self.learner.act)(agents, hidden, obs, last_action, keys, epsilon)
            return hidden, action.astype(jnp.int32)

        return jax.jit(act)

    def _absorb(self, state: TrainState, episodes: Episode, summary: Summary, keys, *, learn: bool) -> TrainState:
        seeds = eqx.tree_at(lambda s: s.key, state.seeds, keys)
        return self.conclude(state, jax.vmap(self.absorb)(seeds, episodes, summary), learn=learn)


def _of_those_played(summary: Summary) -> dict[str, Any]:
    """Means over the episodes that were not lost; a seed that lost them all has no number."""
    played = np.isfinite(summary.returns)
    if played.all():
        return summarise(summary)
    rows = [
        summarise(jax.tree.map(lambda leaf, row=row: leaf[row][played[row]], summary)) for row in range(len(played))
    ]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
