"""The compiled parts of training: initial state, a stretch of training, evaluation, and what sharing methods do.

All seeds train side by side along the first axis of ``TrainState.seeds``. Counters that are the same for all seeds
stand outside that axis, so that "is it time to update?" is one scalar question and never computes both answers.
"""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from prism_marl.buffers.ring import Ring, empty_ring, ring_bytes
from prism_marl.collect.compiled import Summary, play, seed_of, watch
from prism_marl.envs.base import JaxEnv
from prism_marl.experiment.experiment import Experiment
from prism_marl.learners.qmix import Episode, QMix, QMixLearner
from prism_marl.scene import Scene
from prism_marl.sharing import role_layers
from prism_marl.sharing.base import Sharing
from prism_marl.sharing.host_svd import Call, call_now, draw
from prism_marl.training.finite import Faults, no_faults, record_faults, record_values
from prism_marl.training.state import PartialArray

SEEDS = "seeds"  # name of the axis along which seeds train side by side
BLOCKS = 16  # in which a checkpoint fetches the filled part of a replay buffer
CLUSTER_EPISODES = 2_000  # at most so many stored episodes are shown to methods that look at data


class SeedState(eqx.Module):
    """One seed's training."""

    learner: Any  # QMixState, or MATD3State where transitions are stored
    replay: Ring[Any]
    key: Key[Array, ""]
    steps: Int[Array, ""]  # environment steps
    sums: dict[str, Array]  # training metrics, summed since the last evaluation
    faults: Faults  # when each term was first not finite


class TrainState(eqx.Module):
    """Everything that must survive a kill."""

    seeds: SeedState  # first axis: seeds
    iteration: Int[Array, ""]
    summed: Int[Array, ""]  # updates behind ``SeedState.sums``
    prepared: Int[Array, ""]  # 1 once the sharing method has seen its data
    refreshed: Int[Array, ""]  # environment step of the latest refresh


AnyState = TypeVar("AnyState", bound=TrainState)


@dataclass(frozen=True)
class Trainer:
    """Training of one experiment in a JAX environment."""

    experiment: Experiment
    env: JaxEnv
    eager: ClassVar[tuple[str, ...]] = ()  # calls that run in Python because the environment lives there

    @property
    def settings(self) -> QMix:
        return self.experiment.learner  # pyright: ignore[reportReturnType]

    @property
    def learner(self) -> QMixLearner:
        return self.settings.learner(self.experiment.sharing, self.env.spec, self.experiment.network.width)

    def init(self, call: Call = call_now) -> TrainState:
        """Fresh state of all seeds."""
        keys = jax.vmap(jax.random.key)(self._numbers())
        _metrics(self.learner)  # remembered: it traces a whole network, which must not happen while ``draw`` traces one
        return TrainState(draw(self._init_seed, keys, call), *[jnp.zeros((), jnp.int32) for _ in range(4)])

    def _numbers(self) -> Int[Array, " seeds"]:
        run = self.experiment.run
        return jnp.arange(run.seed, run.seed + run.seeds, dtype=jnp.uint32)

    def _init_seed(self, key) -> SeedState:
        key_learner, key_train = jax.random.split(key)
        learner = self.learner
        state = learner.init(key_learner)
        return SeedState(
            learner=state,
            replay=empty_ring(learner.empty_episode(), self.experiment.learner.buffer),
            key=key_train,
            steps=jnp.zeros((), jnp.int32),
            sums={name: jnp.zeros(()) for name in _metrics(learner)},
            faults=no_faults(_metrics(learner)),
        )

    def advance(self, state: TrainState, target: Int[Array, ""], *, learn: bool) -> TrainState:
        """Collect and update until every seed has taken ``target`` environment steps."""

        def unfinished(state: TrainState):
            return jnp.min(state.seeds.steps) < target

        return jax.lax.while_loop(unfinished, lambda state: self._iterate(state, learn), state)

    def _iterate(self, state: TrainState, learn: bool) -> TrainState:
        return self.conclude(state, self._collect(state.seeds), learn=learn)

    def conclude(self, state: TrainState, seeds: SeedState, *, learn: bool) -> TrainState:
        """Count an iteration whose episodes are stored in ``seeds``, and make the updates that they pay for."""
        iteration, summed = state.iteration + 1, state.summed
        if learn:
            settings, envs = self.settings, self.experiment.run.envs
            updates = max(1, envs // settings.episodes_per_update)
            rest = max(1, settings.episodes_per_update // envs)  # iterations for each update, with few environments
            ready = (iteration * envs >= settings.batch) & (iteration % rest == 0)
            # Only what an update changes goes through the branch: the replay would be copied on its way out.
            changing = (seeds.learner, seeds.key, seeds.sums, seeds.faults)
            train = lambda: self._train(changing, seeds.replay, seeds.steps, updates)  # noqa: E731
            changed = jax.lax.cond(ready, train, lambda: changing)
            seeds = SeedState(changed[0], seeds.replay, changed[1], seeds.steps, *changed[2:])
            summed = summed + ready * updates
        return TrainState(seeds, iteration, summed, state.prepared, state.refreshed)

    def _collect(self, seeds: SeedState) -> SeedState:
        keys, keys_play = jnp.unstack(jax.vmap(jax.random.split)(seeds.key), axis=1)
        learner, agents = self.learner, seeds.learner.online.agent
        rates = jax.vmap(learner.epsilon)(seeds.steps)
        episodes, summary = play(self.env, learner, agents, keys_play, rates, self.experiment.run.envs)
        return jax.vmap(self.absorb)(eqx.tree_at(lambda s: s.key, seeds, keys), episodes, summary)

    def absorb(self, seed: SeedState, episodes: Episode, summary: Summary) -> SeedState:
        """Store episodes and count their steps."""
        steps = seed.steps + jnp.sum(summary.length).astype(jnp.int32)
        faults = record_faults(seed.faults, {name: jnp.all(fine) for name, fine in summary.sound.items()}, steps)
        return SeedState(seed.learner, seed.replay.add(episodes), seed.key, steps, seed.sums, faults)

    def _train(self, changing, rings: Ring[Episode], steps: Int[Array, " seeds"], updates: int):
        """Some updates of all seeds."""
        states, keys, sums, faults = changing
        keys, drawn = jnp.unstack(jax.vmap(jax.random.split)(keys), axis=1)
        learner, batch = self.learner, self.experiment.learner.batch

        def one(state, sums, faults, ring: Ring[Episode], steps, key):
            state, metrics = learner.update(state, ring.sample(key, batch), steps, axis=SEEDS)
            sums = {name: sums[name] + metrics[name] for name in sums}
            return state, sums, record_values(faults, metrics, steps)

        def update(carry, keys):
            state, sums, faults = carry
            return jax.vmap(one, axis_name=SEEDS)(state, sums, faults, rings, steps, keys), None

        each = jnp.swapaxes(jax.vmap(lambda key: jax.random.split(key, updates))(drawn), 0, 1)
        (states, sums, faults), _ = jax.lax.scan(update, (states, sums, faults), each)
        return states, keys, sums, faults

    def evaluate(self, state: TrainState, evaluation: Int[Array, ""]) -> dict[str, Array]:
        """Greedy episodes of every seed; means over episodes, one number per seed."""
        agents, number = state.seeds.learner.online.agent, self.experiment.run.eval_episodes
        keys = jax.vmap(evaluation_key, (0, None))(self._numbers(), evaluation)
        return summarise(play(self.env, self.learner, agents, keys, 0.0, number)[1])

    def watch(self, state: TrainState, *, seed: int, number: int) -> tuple[list[Scene], float]:
        """One greedy episode as drawings and its return; no drawings where the environment has none."""
        drawn = getattr(self.env, "scene", None)
        if drawn is None:
            return [], 0.0
        agent = seed_of(state.seeds.learner.online.agent, seed)
        key = self._watch_key(seed, number)
        states, summary, length = jax.device_get(_watch(self.env, self.learner, agent, key))
        frames = [jax.tree.map(lambda leaf, t=t: leaf[t], states) for t in range(int(length) + 1)]
        return [drawn(frame) for frame in frames], float(summary.returns[0])

    def _watch_key(self, seed: int, number: int) -> Key[Array, ""]:
        return jax.random.fold_in(jax.random.key(self.experiment.run.seed + seed), number)

    @property
    def prepares(self) -> bool:
        """Whether the sharing method looks at data at all."""
        return type(self.experiment.sharing).prepare is not Sharing.prepare

    def prepare(self, state: TrainState) -> TrainState:
        """Let the sharing method look at the data collected so far, once."""
        seeds = self._change_agents(state.seeds, self.experiment.sharing.prepare) if self.prepares else state.seeds
        return eqx.tree_at(lambda s: (s.seeds, s.prepared), state, (seeds, jnp.ones((), jnp.int32)))

    def refresh(self, state: TrainState) -> TrainState:
        """Resets and re-clustering of the sharing method."""
        seeds = self._change_agents(state.seeds, self.experiment.sharing.refresh)
        return eqx.tree_at(lambda s: (s.seeds, s.refreshed), state, (seeds, jnp.min(seeds.steps)))

    def _change_agents(self, seeds: SeedState, change) -> SeedState:
        number = min(CLUSTER_EPISODES, self.experiment.learner.buffer)

        def one(seed: SeedState) -> SeedState:
            key, key_change = jax.random.split(seed.key)
            episodes = seed.replay.newest(number)
            held = jnp.arange(number) < seed.replay.count
            episodes = episodes._replace(valid=episodes.valid & held[:, None])
            agent = change(seed.learner.online.agent, self.learner.experience(episodes), key_change)
            # Labels and node masks are not learned, so the target has them at once; weights wait for the next copy.
            target = eqx.combine(eqx.filter(seed.learner.target.agent, eqx.is_inexact_array), agent)
            places = lambda s: (s.learner.online.agent, s.learner.target.agent, s.key)  # noqa: E731
            return eqx.tree_at(places, seed, (agent, target, key))

        return jax.vmap(one)(seeds)

    def spectra(self, state: TrainState) -> dict[str, Any]:
        """Masked singular values and masks of every factorised layer: name -> ([seeds, m, r], [seeds, m, r])."""

        def one(agent):
            found = {name: layer.spectrum() for name, layer in role_layers(agent).items()}
            return {name: values for name, values in found.items() if values is not None}

        return jax.vmap(one)(state.seeds.learner.online.agent)

    @property
    def warmup(self) -> int:
        """Environment steps before training that do not count towards the budget."""
        return 0

    def shapes(self) -> TrainState:
        """The state without its numbers: what checkpoints are read into."""
        return with_beginnings(jax.eval_shape(self.init))

    def packed(self, state: AnyState) -> AnyState:
        """What a checkpoint needs of a state: of the replay buffers only the part that is filled."""
        filled = int(jax.device_get(state.seeds.replay.added).max())
        if filled >= self.settings.buffer:
            return state
        storage = jax.tree.map(lambda leaf: _beginning(leaf, filled), state.seeds.replay.storage)
        return eqx.tree_at(lambda s: s.seeds.replay.storage, state, storage)

    def replay_bytes(self) -> int:
        """Memory of the replay buffers of all seeds."""
        e = self.experiment
        return e.run.seeds * ring_bytes(self.learner.empty_episode(), e.learner.buffer)

    def warm(self, name: str, state: TrainState) -> None:
        """Compile what an eager call needs; here none is eager."""

    def dropped(self) -> int | None:
        """Episodes lost so far with a game that died or hung; None where none can be."""
        return None

    def close(self) -> None:
        """Let go of whatever the environment holds; compiled ones hold nothing."""


def with_beginnings(state: AnyState) -> AnyState:
    """Shapes of a state whose replay buffers a checkpoint may hold in part."""
    storage = jax.tree.map(lambda leaf: PartialArray(leaf.shape, leaf.dtype, axis=1), state.seeds.replay.storage)
    return eqx.tree_at(lambda s: s.seeds.replay.storage, state, storage)


@functools.partial(jax.jit, static_argnums=2)
def _block(leaf: Array, start: Any, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(leaf, start, size, axis=1)


def _beginning(leaf: Array, filled: int) -> np.ndarray:
    """The first places of all buffers, on the host. They come in blocks of one size: JAX compiles and keeps a program
    for every size that it is asked for, which would be one for each checkpoint, and the device has little to copy."""
    block = max(1, -(-leaf.shape[1] // BLOCKS))
    held = np.empty((leaf.shape[0], filled, *leaf.shape[2:]), leaf.dtype)
    for wanted in range(0, filled, block):
        start = min(wanted, leaf.shape[1] - block)  # the last block may reach back into the one before
        held[:, start : start + block] = np.asarray(_block(leaf, start, block))[:, : filled - start]
    return held


def evaluation_key(number: Int[Array, ""], evaluation: Int[Array, ""]) -> Key[Array, ""]:
    """The episodes of one seed's evaluation, apart from those it trains on."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(number), 0x5EED), evaluation)


_watch = jax.jit(watch, static_argnums=(0, 1))  # compiled once for all episodes of a task and a learner


def summarise(summary: Summary) -> dict[str, Array]:
    """Means over the episode axis, with every environment metric under its own name."""
    values = {"return": summary.returns, "length": summary.length, **summary.metrics}
    return {name: jnp.mean(value, axis=-1) for name, value in values.items()}


@functools.lru_cache(maxsize=8)
def _metrics(learner: QMixLearner) -> tuple[str, ...]:
    """Names of what an update reports; asked by tracing one, which takes a while."""
    state = jax.eval_shape(learner.init, jax.random.key(0))
    batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), learner.empty_episode())
    return tuple(sorted(jax.eval_shape(learner.update, state, batch, jnp.zeros((), jnp.int32))[1]))
