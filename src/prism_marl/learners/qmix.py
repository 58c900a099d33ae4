"""QMIX: value decomposition over whole episodes with a recurrent agent network."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.errors import UserError
from prism_marl.learners import losses, optimisers
from prism_marl.learners.regularisation import Balance, regularised
from prism_marl.networks.inputs import Inputs
from prism_marl.networks.mixer import mixer
from prism_marl.networks.recurrent import RecurrentAgent, recurrent_agent
from prism_marl.sharing.base import Experience, Sharing
from prism_marl.types import EnvSpec, Observation

UNAVAILABLE = -1e7  # below every value a network produces
SHORTEST = 50  # steps below which cutting a block short saves less than another version costs to compile


@dataclass(frozen=True)
class QMix:
    """Settings of QMIX; the defaults are the paper's LBF table where no preset says otherwise."""

    algorithm: Literal["qmix"] = "qmix"
    lr: float = 5e-4  # learning rate of Adam
    clip: float = 10.0  # largest global norm of a gradient
    gamma: float = 0.99  # discount
    td_lambda: float = 0.6  # 0 = one-step targets, 1 = returns
    batch: int = 32  # episodes in one update
    buffer: int = 5_000  # episodes kept
    episodes_per_update: int = 1  # collected episodes for each gradient step
    target_interval: int = 200  # gradient steps between two copies of the target network
    target_rate: float = 0.0  # above 0: instead of copies, the target moves by this share after every gradient step
    epsilon_start: float = 1.0  # exploration at step 0
    epsilon_finish: float = 0.05  # exploration at the end of the decay
    epsilon_anneal: int = 50_000  # environment steps of the decay
    embed: int = 32  # width of the mixer
    hypernet: int = 64  # hidden units behind the mixer's weights
    last_action: bool = False  # agents also read their last action
    scale_inputs: bool = False  # divide observations and state by their largest possible size
    time_limit_ends: bool = True  # the clock running out counts as a true end: no bootstrap
    half_loss: bool = True  # loss is half the squared error
    standardise_rewards: bool = False  # rewards minus their running mean, over their deviation, as EPyMARL does

    def learner(self, sharing: Sharing, spec: EnvSpec, width: int) -> "QMixLearner":
        """The learner that these settings stand for."""
        return QMixLearner(self, sharing, spec, width)

    def validate(self, spec: EnvSpec, envs: int) -> None:
        """Everything that would otherwise fail inside the compiler."""
        if spec.kind != "discrete":
            raise UserError(f"learner.algorithm: QMIX needs discrete actions, but '{spec.name}' has continuous ones")
        positive = ("lr", "clip", "batch", "buffer", "episodes_per_update", "target_interval", "epsilon_anneal")
        for name in (*positive, "embed", "hypernet"):
            if getattr(self, name) <= 0:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is not positive; the default is {getattr(QMix, name)}"
                )
        for name in ("gamma", "td_lambda", "target_rate", "epsilon_start", "epsilon_finish"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is outside [0, 1]; the default is {getattr(QMix, name)}"
                )
        if self.batch > self.buffer:
            raise UserError(
                f"learner.batch: {self.batch} episodes do not fit a buffer of {self.buffer}; lower learner.batch"
            )
        if envs > self.buffer:
            raise UserError(f"run.envs: {envs} episodes do not fit a buffer of {self.buffer}; lower run.envs")
        if envs % self.episodes_per_update and self.episodes_per_update % envs:
            near = max(1, round(envs / self.episodes_per_update)) * self.episodes_per_update
            raise UserError(
                f"run.envs: {envs} is no multiple or divisor of learner.episodes_per_update "
                f"({self.episodes_per_update}); the nearest valid value is {near}"
            )


class Episode(NamedTuple):
    """One padded episode. Slots t = 0..T hold observations, t = 0..T-1 what happened after them."""

    local: Float[Array, "*b t1 a o"]
    state: Float[Array, "*b t1 s"]  # empty where it is the joint observation
    avail: Bool[Array, "*b t1 a u"]
    role: Int[Array, "*b t1 a"]
    action: Int[Array, "*b t a"]
    reward: Float[Array, "*b t"]
    terminated: Bool[Array, "*b t"]
    valid: Bool[Array, "*b t"]  # the step was really taken


class RewardScale(eqx.Module):
    """Running mean and variance of rewards (EPyMARL's standardisation: its count starts at 1e-4)."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]
    count: Float[Array, ""]

    def update(self, reward: Float[Array, "..."]) -> "RewardScale":
        """Merge a batch by the parallel formula."""
        number = reward.size
        mean, variance = jnp.mean(reward), jnp.var(reward, ddof=1 if number > 1 else 0)
        total, delta = self.count + number, mean - self.mean
        spread = self.variance * self.count + variance * number + delta**2 * self.count * number / total
        return RewardScale(self.mean + delta * number / total, spread / total, total)

    def apply(self, reward: Float[Array, "..."]) -> Float[Array, "..."]:
        return (reward - self.mean) / jnp.sqrt(self.variance)


class Networks(eqx.Module):
    """What the optimiser trains: one gradient norm, one Adam."""

    agent: RecurrentAgent
    mixer: Callable[[Array, Array], Array]  # the agents' values [*b a] and the state [*b s] to one value [*b]


class QMixState(eqx.Module):
    """All that learning carries from one update to the next."""

    online: Networks
    target: Networks
    optimiser: Any
    balance: Balance
    scale: RewardScale
    updates: Int[Array, ""]


@dataclass(frozen=True)
class QMixLearner:
    """QMIX for one task and one sharing method. Pure functions; all state is in ``QMixState``."""

    settings: QMix
    sharing: Sharing
    spec: EnvSpec
    width: int

    @property
    def _scale(self) -> float:
        return 1 / self.spec.magnitude if self.settings.scale_inputs else 1.0

    @property
    def inputs(self) -> Inputs:
        return Inputs.of(self.sharing, last_action=self.settings.last_action)

    def agent(self, key: Key[Array, ""]) -> RecurrentAgent:
        """A fresh agent network."""
        return recurrent_agent(
            self.sharing,
            inputs=self.inputs.size(self.spec),
            actions=self.spec.actions,
            width=self.width,
            agents=self.spec.agents,
            roles=self.spec.roles,
            key=key,
        )

    def mixer(self, key: Key[Array, ""]) -> Callable[[Array, Array], Array]:
        """A fresh mixer."""
        settings, spec = self.settings, self.spec
        return mixer(agents=spec.agents, state=spec.state, embed=settings.embed, hypernet=settings.hypernet, key=key)

    def init(self, key: Key[Array, ""]) -> QMixState:
        """Fresh networks; the target starts as a copy."""
        key_agent, key_mixer = jax.random.split(key)
        online = Networks(self.agent(key_agent), self.mixer(key_mixer))
        return QMixState(
            online=online,
            target=online,
            optimiser=self._optimiser().init(eqx.filter(online, eqx.is_inexact_array)),
            balance=Balance.empty(self.sharing.penalties().window),
            scale=RewardScale(jnp.zeros(()), jnp.ones(()), jnp.asarray(1e-4)),
            updates=jnp.zeros((), jnp.int32),
        )

    def act(
        self,
        agent: RecurrentAgent,
        hidden: Float[Array, "*b a h"],
        obs: Observation,
        last_action: Int[Array, "*b a"],
        key: Key[Array, ""],
        epsilon: Float[Array, ""] | float,
    ) -> tuple[Float[Array, "*b a h"], Int[Array, "*b a"]]:
        """Greedy in the action values, or with probability epsilon uniform over the legal actions."""
        x = self.inputs.join(obs.local * self._scale, last_action, self.spec.actions)
        hidden, values = agent(hidden, x, obs.role)
        greedy = jnp.argmax(jnp.where(obs.avail, values, UNAVAILABLE), axis=-1)
        # One draw serves both decisions: where it is uniform in [0, 1), the part below epsilon is uniform again.
        draw = jax.random.uniform(key, greedy.shape)
        legal = jnp.cumsum(obs.avail, axis=-1)
        rank = jnp.floor(draw / jnp.maximum(epsilon, 1e-9) * legal[..., -1]).astype(legal.dtype)
        rank = jnp.minimum(rank, legal[..., -1] - 1)  # a compiler's division may round up to one
        uniform = jnp.argmax((legal == rank[..., None] + 1) & obs.avail, axis=-1)
        return hidden, jnp.where(draw < epsilon, uniform, greedy)

    def epsilon(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Exploration rate; random until the sharing method has seen enough to prepare."""
        s = self.settings
        rate = losses.epsilon(step, start=s.epsilon_start, finish=s.epsilon_finish, anneal=s.epsilon_anneal)
        return jnp.where(step < self.sharing.pretraining_steps(), 1.0, rate)

    def row(self, step: int) -> dict[str, float]:
        """What a row of training metrics says about a step, apart from the means."""
        return {"epsilon": float(self.epsilon(jnp.int32(step)))}

    def update(
        self, state: QMixState, batch: Episode, step: Int[Array, ""], *, axis: str | None = None
    ) -> tuple[QMixState, dict[str, Array]]:
        """One gradient step on a batch of episodes [b, t, ...]; ``step`` is the environment step.

        Under ``vmap`` its axis should be named: then all seeds agree on how much of the time axis they need.
        """
        episode = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), batch)  # time first, for the scan
        scale = state.scale
        if self.settings.standardise_rewards:
            scale = scale.update(episode.reward)
            episode = episode._replace(reward=scale.apply(episode.reward))
        trainable, fixed = eqx.partition(state.online, eqx.is_inexact_array)

        def gradient_of(episode: Episode):
            def loss(trainable):
                return self._loss(eqx.combine(trainable, fixed), state.target, episode, state.balance)

            return jax.grad(loss, has_aux=True)(trainable)

        gradient, (balance, metrics) = _on_shortened(gradient_of, episode, axis)
        gradient = eqx.tree_at(lambda nets: nets.agent, gradient, self.sharing.constrain(gradient.agent, step))
        updates, optimiser = self._optimiser().update(gradient, state.optimiser, trainable)
        online: Networks = eqx.combine(eqx.apply_updates(trainable, updates), fixed)
        target = self._follow(state.target, online, state.updates + 1)
        metrics["grad_norm"] = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)))
        return QMixState(online, target, optimiser, balance, scale, state.updates + 1), metrics

    def _follow(self, target: Networks, online: Networks, updates: Int[Array, ""]) -> Networks:
        """The target network after a gradient step: a copy now and then, or a slow average."""
        if self.settings.target_rate > 0:
            rate = self.settings.target_rate
            move = lambda new, old: old + rate * (new - old) if eqx.is_inexact_array(new) else new  # noqa: E731
            return jax.tree.map(move, online, target)
        copy = updates % self.settings.target_interval == 0
        return jax.tree.map(lambda new, old: jnp.where(copy, new, old), online, target)

    def _loss(self, online: Networks, target: Networks, episode: Episode, balance: Balance):
        s = self.settings
        x, state, action = self._inputs(episode)
        values, target_values = online.agent.unroll_with(target.agent, x, episode.role)
        best = jnp.argmax(jnp.where(episode.avail, jax.lax.stop_gradient(values), UNAVAILABLE), axis=-1)
        chosen = _pick(values[:-1], action)
        total = online.mixer(chosen, state[:-1])
        bootstrap = target.mixer(_pick(target_values, best), state)
        returns = losses.td_lambda(
            episode.reward, episode.terminated, episode.valid, bootstrap, gamma=s.gamma, lam=s.td_lambda
        )
        error = total - jax.lax.stop_gradient(returns)
        task = losses.masked_mean((0.5 if s.half_loss else 1.0) * error**2, episode.valid)
        loss, balance, metrics = self._regularised(task, online.agent, balance)
        metrics["q_total"] = losses.masked_mean(total, episode.valid)
        return loss, (balance, metrics)

    def _regularised(self, task, agent: RecurrentAgent, balance: Balance):
        loss, balance, terms = regularised(task, agent, self.sharing.penalties(), balance)
        return loss, balance, {"td_loss": task, **terms, "loss": loss}

    def _inputs(self, episode: Episode):
        local = episode.local.astype(jnp.float32) * self._scale
        last = jnp.concatenate([jnp.full_like(episode.action[:1], -1), episode.action]).astype(jnp.int32)
        state = (
            local.reshape(*local.shape[:-2], -1)
            if self.spec.state_is_joint
            else episode.state.astype(jnp.float32) * self._scale
        )
        return self.inputs.join(local, last, self.spec.actions), state, episode.action

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.chain(
            optax.clip_by_global_norm(self.settings.clip), optimisers.adam(self.settings.lr, self.sharing)
        )

    def empty_episode(self) -> Episode:
        """Shapes and types of one stored episode."""
        spec = self.spec

        def shape(*sizes: int, dtype: Any) -> Any:
            return jax.ShapeDtypeStruct(sizes, jnp.dtype(dtype))

        slots, steps = spec.horizon + 1, spec.horizon
        return Episode(
            local=shape(slots, spec.agents, spec.observation, dtype=spec.storage),
            state=shape(slots, 0 if spec.state_is_joint else spec.state, dtype=spec.storage),
            avail=shape(slots, spec.agents, spec.actions, dtype=bool),
            role=shape(slots, spec.agents, dtype="int16"),
            action=shape(steps, spec.agents, dtype="int16"),
            reward=shape(steps, dtype="float32"),
            terminated=shape(steps, dtype=bool),
            valid=shape(steps, dtype=bool),
        )

    def experience(self, episodes: Episode) -> Experience:
        """Episodes [n, t, ...] as single transitions, for sharing methods that look at data."""
        local = episodes.local.astype(jnp.float32)
        alive = jnp.any(local[:, :-1] != 0, axis=-1)  # a dead unit observes zeros
        flat = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])  # noqa: E731
        return Experience(
            local=flat(local[:, :-1]),
            action=flat(jax.nn.one_hot(episodes.action, self.spec.actions)),
            next_local=flat(local[:, 1:]),
            reward=flat(episodes.reward),
            valid=flat(episodes.valid[..., None] & alive),
        )


def _on_shortened(function: Callable[[Episode], Any], episode: Episode, axis: str | None) -> Any:
    """The function of an episode block [t, b, ...] without time that no episode in it has reached.

    Shapes are fixed when compiling, so there is one version for the whole horizon, one for its half, and so on. Masks
    leave nothing of what is cut, so all versions mean the same; battles mostly end long before their clock.
    """
    lengths = [len(episode.valid)]
    while lengths[0] >= 2 * SHORTEST:
        lengths.insert(0, -(-lengths[0] // 2))
    if len(lengths) == 1:
        return function(episode)
    longest = jnp.max(jnp.sum(episode.valid, axis=0))
    longest = longest if axis is None else jax.lax.pmax(longest, axis)

    def shortened(length: int) -> Callable[[Episode], Any]:
        horizon = lengths[-1]
        return lambda episode: function(jax.tree.map(lambda leaf: leaf[: len(leaf) - horizon + length], episode))

    which = jnp.searchsorted(jnp.asarray(lengths), longest)
    return jax.lax.switch(which, [shortened(length) for length in lengths], episode)


def _pick(values: Float[Array, "*b u"], action: Int[Array, "*b"]) -> Float[Array, "*b"]:
    """The value of the chosen action, by a comparison that fuses where a gather would not."""
    chosen = jnp.arange(values.shape[-1]) == action[..., None]
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=-1)
