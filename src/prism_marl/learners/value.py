"""Learning action values from whole episodes with a recurrent agent network: what QMIX, VDN and IQL have in common.

A learner of this kind says how the agents' values become the values that are regressed (``mix``), and, where it needs
to, which targets they have (``returns``) and what an error costs (``cost``).
"""

import abc
import functools
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from prism_marl.buffers.ring import Ring
from prism_marl.learners import losses, optimisers
from prism_marl.learners.actions import UNAVAILABLE, explored
from prism_marl.learners.base import SEEDS, Clock, Collection, Deployment, Mode, Signal, Trajectory
from prism_marl.learners.episodes import EpisodeStore
from prism_marl.learners.log import Log
from prism_marl.learners.numpy_values import NumpyValues, numpy_values
from prism_marl.learners.packed import Packing, laid_out
from prism_marl.learners.padding import without_padding
from prism_marl.learners.regularisation import Balance, regularised
from prism_marl.learners.rewards import RewardScale
from prism_marl.learners.targets import after_change
from prism_marl.learners.value_costs import costs, signal
from prism_marl.learners.value_state import Memory, Mixer, Networks, ValueState
from prism_marl.networks.build import build_agent
from prism_marl.networks.inputs import Inputs
from prism_marl.networks.recurrent import RecurrentAgent
from prism_marl.sharing.base import Experience, Sharing
from prism_marl.sharing.dense import materialise
from prism_marl.types import EnvSpec, Observation


@dataclass(frozen=True)
class ValueLearner(abc.ABC):
    """Values of one task under one sharing method. Pure functions; all state is in ``ValueState``."""

    settings: Any  # ``ValueSettings``
    sharing: Sharing
    spec: EnvSpec
    width: int
    rows: int = 1

    @abc.abstractmethod
    def mixer(self, key: Key[Array, ""]) -> Mixer | None:
        """A fresh mixer, where there is one."""

    def mix(
        self, networks: Networks, values: Float[Array, "t b a"], state: Float[Array, "t b s"]
    ) -> Float[Array, "t b"]:
        """What is regressed, from the values of the agents' actions."""
        assert networks.mixer is not None
        return networks.mixer(values, state)

    def returns(self, episodes: Trajectory, bootstrap: Float[Array, "t1 b"]) -> Float[Array, "t b"]:
        """The targets of what is regressed."""
        s = self.settings
        return losses.td_lambda(
            episodes.reward, episodes.terminated, episodes.valid, bootstrap, gamma=s.gamma, lam=s.td_lambda
        )

    def cost(self, error: Float[Array, "*b"]) -> Float[Array, "*b"]:
        """What errors cost; an error is a value minus its target."""
        return error**2

    @property
    def individual(self) -> bool:
        """Whether agents learn from rewards of their own, where there are such; mixed values have one reward."""
        return False

    @property
    def collection(self) -> Collection:
        return Collection("episodes", self.spec.horizon)

    @property
    def metrics(self) -> tuple[str, ...]:
        return _metrics(self)

    @property
    def checks(self) -> tuple[str, ...]:
        return ()

    @property
    def _scale(self) -> float:
        return 1 / self.spec.magnitude if self.settings.scale_inputs else 1.0

    @property
    def inputs(self) -> Inputs:
        return Inputs.of(self.sharing, self.spec, last_action=self.settings.last_action)

    def build_agent(self, key: Key[Array, ""]) -> RecurrentAgent:
        """A fresh agent network."""
        agent = build_agent(self.spec, self.sharing, width=self.width, last_action=self.settings.last_action, key=key)
        assert isinstance(agent, RecurrentAgent)
        return agent

    def init(self, key: Key[Array, ""]) -> ValueState:
        """Fresh networks; the target starts as a copy."""
        key_networks, key_train = jax.random.split(key)
        key_agent, key_mixer = jax.random.split(key_networks)
        online = Networks(self.build_agent(key_agent), self.mixer(key_mixer))
        return ValueState(
            online=online,
            target=online,
            optimiser=self._optimiser().init(eqx.filter(online, eqx.is_inexact_array)),
            balance=Balance.empty(self.sharing.penalties().window),
            scale=RewardScale.fresh(self.spec.agents if self.individual else None),
            updates=jnp.zeros((), jnp.int32),
            key=key_train,
        )

    def counters(self) -> tuple[()]:
        return ()

    def key(self, state: ValueState, clock: Clock, purpose: str) -> tuple[ValueState, Key[Array, ""]]:
        """Every key is split off the training key."""
        del clock, purpose
        key, drawn = jax.random.split(state.key)
        return eqx.tree_at(lambda s: s.key, state, key), drawn

    def policy(self, state: ValueState) -> RecurrentAgent:
        return materialise(state.online.agent)

    def numpy(self) -> None:
        return None

    def on_host(self, rows: int) -> NumpyValues | None:
        """``act`` in numpy, where that is faster for so many rows; a learner that acts in another way has none."""
        return numpy_values(self, self._scale, rows) if type(self).act is ValueLearner.act else None

    def memory(self, policy: RecurrentAgent, *batch: int) -> Memory:
        agents = self.spec.agents
        return Memory(policy.initial(*batch, agents), jnp.full((*batch, agents), -1, jnp.int32))

    def act(
        self,
        policy: RecurrentAgent,
        memory: Memory,
        obs: Observation,
        key: Key[Array, ""],
        step: Int[Array, ""],
        mode: Mode,
    ) -> tuple[Memory, Int[Array, "*b a"], tuple[()]]:
        """Greedy in the action values, or with probability epsilon uniform over the legal actions."""
        hidden, greedy = memory.hidden, jnp.zeros(memory.last_action.shape, jnp.int32)
        if mode != "random":
            x = self.inputs.join(obs.local * self._scale, memory.last_action, self.spec.actions)
            hidden, values = policy(hidden, x, obs.role)
            greedy = jnp.argmax(jnp.where(obs.avail, values, UNAVAILABLE), axis=-1).astype(jnp.int32)
        if mode == "greedy":
            return Memory(hidden, greedy), greedy, ()
        rate = self.epsilon(step) if mode == "explore" else jnp.ones(())
        action = explored(key, greedy, obs.avail, rate).astype(jnp.int32)
        return Memory(hidden, action), action, ()

    def epsilon(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Exploration rate; random until the sharing method has seen enough to prepare."""
        s = self.settings
        rate = losses.epsilon(step, start=s.epsilon_start, finish=s.epsilon_finish, anneal=s.epsilon_anneal)
        return jnp.where(step < self.sharing.pretraining_steps(), 1.0, rate)

    def row(self, step: int) -> dict[str, float]:
        """What a row of training metrics says about a step, apart from the means."""
        return {"epsilon": float(self.epsilon(jnp.int32(step)))}

    @property
    def episodes(self) -> EpisodeStore:
        """How whole episodes are stored."""
        return EpisodeStore(self.spec, self.settings.buffer, self.settings.time_limit_ends, self.individual)

    def template(self) -> Trajectory:
        return self.episodes.template()

    def buffer(self) -> Ring[Trajectory]:
        return self.episodes.empty()

    def add(self, buffer: Ring[Trajectory], batch: Trajectory) -> Ring[Trajectory]:
        return self.episodes.add(buffer, batch)

    def experience(self, buffer: Ring[Trajectory]) -> Experience:
        return self.episodes.experience(buffer, self._scale)

    def update(
        self, state: ValueState, buffer: Ring[Trajectory], batch: Any, log: Log, step: Int[Array, ""], clock: Clock
    ) -> tuple[ValueState, Log, Clock]:
        """The updates that an iteration's episodes pay for, once there are enough of them."""
        del batch
        s = self.settings
        updates = max(1, self.rows // s.episodes_per_update)
        rest = max(1, s.episodes_per_update // self.rows)  # iterations for each update, with few environments
        ready = (clock.iteration * self.rows >= s.batch) & (clock.iteration % rest == 0)

        def one(carry: tuple[ValueState, Log], key: Key[Array, ""]):
            state, log = carry
            state, metrics = self.improve(state, self.episodes.sample(buffer, key, s.batch), step, axis=SEEDS)
            return (state, log.add(metrics, step)), None

        def train():
            after, drawn = self.key(state, clock, "update")
            return jax.lax.scan(one, (after, log), jax.random.split(drawn, updates))[0]

        state, log = jax.lax.cond(ready, train, lambda: (state, log))
        return state, log, clock._replace(summed=clock.summed + ready * updates)

    def improve(
        self, state: ValueState, batch: Trajectory, step: Int[Array, ""], *, axis: str | None = None
    ) -> tuple[ValueState, dict[str, Array]]:
        """One gradient step on a batch of episodes [b, t, ...]; ``step`` is the environment step.

        Under ``vmap`` its axis should be named: then all seeds agree on how much of the time axis they need.
        """
        episodes = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), batch)  # time first, for the scan
        scale = state.scale
        if self.settings.standardise_rewards:
            scale, episodes = scale.standardised(episodes)
        gradient, balance, metrics = self._gradient(state, episodes, axis)
        whole = gradient.agent
        gradient = eqx.tree_at(lambda nets: nets.agent, gradient, self.sharing.constrain(whole, step))
        trainable, fixed = eqx.partition(state.online, eqx.is_inexact_array)
        updates, optimiser = self._optimiser().update(gradient, state.optimiser, trainable)
        online: Networks = eqx.combine(eqx.apply_updates(trainable, updates), fixed)
        online = eqx.tree_at(lambda nets: nets.agent, online, self.sharing.after_update(online.agent, whole))
        target = self._follow(state.target, online, state.updates + 1)
        metrics["grad_norm"] = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)))
        return ValueState(online, target, optimiser, balance, scale, state.updates + 1, state.key), metrics

    def _gradient(self, state: ValueState, episodes: Trajectory, axis: str | None):
        """The gradient of the mean cost of all steps and of the sharing method's terms."""
        trainable, fixed = eqx.partition(state.online, eqx.is_inexact_array)

        def part(episodes: Trajectory, packing: Packing | None):
            def costs(trainable):
                return self._costs(eqx.combine(trainable, fixed), state.target, episodes, packing)

            return jax.value_and_grad(costs, has_aux=True)(trainable)

        (task, (value, steps)), gradient = without_padding(part, episodes, axis)
        task, value, gradient = jax.tree.map(lambda leaf: leaf / jnp.maximum(steps, 1.0), (task, value, gradient))

        def terms(agent):
            loss, balance, found = regularised(
                task, eqx.combine(agent, fixed.agent), self.sharing.penalties(), state.balance
            )
            return loss, (balance, {"td_loss": task, **found, "loss": loss, "q_total": value})

        more, (balance, metrics) = jax.grad(terms, has_aux=True)(trainable.agent)
        total = jax.tree.map(jnp.add, gradient.agent, more)
        return eqx.tree_at(lambda nets: nets.agent, gradient, total), balance, metrics

    def _follow(self, target: Networks, online: Networks, updates: Int[Array, ""]) -> Networks:
        """The target network after a gradient step: a copy now and then, or a slow average."""
        if self.settings.target_rate > 0:
            rate = self.settings.target_rate
            move = lambda new, old: old + rate * (new - old) if eqx.is_inexact_array(new) else new  # noqa: E731
            return jax.tree.map(move, online, target)
        copy = updates % self.settings.target_interval == 0
        return jax.tree.map(lambda new, old: jnp.where(copy, new, old), online, target)

    def _costs(self, online: Networks, target: Networks, episodes: Trajectory, packing: Packing | None):
        """Sums over the steps of some rows: what the errors cost, the values, and how many there are."""
        rows = laid_out(episodes, packing)
        rows = rows._replace(obs=self.episodes.seen(rows.obs))
        x, state = self.read(rows.obs, rows.last)
        outputs = online.agent.unroll_with(target.agent, x, rows.obs.role, rows.fresh)
        return costs(self, outputs, (online, target), episodes, rows, state)

    def read(self, obs: Observation, last: Int[Array, "t b a"]):
        """What agents and the mixer read."""
        local = obs.local.astype(jnp.float32) * self._scale
        joint = self.spec.state_is_joint
        state = local.reshape(*local.shape[:-2], -1) if joint else obs.state.astype(jnp.float32) * self._scale
        return self.inputs.join(local, last, self.spec.actions), state

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.chain(
            optax.clip_by_global_norm(self.settings.clip), optimisers.adam(self.settings.lr, self.sharing)
        )

    def agent(self, state: ValueState) -> RecurrentAgent:
        return state.online.agent

    def deployment(self, state: ValueState) -> Deployment:
        """The best legal action; training ends with ``epsilon_finish`` random ones."""
        rate = self.settings.epsilon_finish
        return Deployment(state.online.agent, self.inputs, "argmax", "epsilon", rate, scale=self._scale)

    def signal(self, state: ValueState, episodes: Trajectory) -> Signal:
        """The mean cost of errors, with targets and mixer as they are."""
        return signal(self, state, episodes)

    def with_agent(self, state: ValueState, agent: RecurrentAgent) -> ValueState:
        target = after_change(state.target.agent, state.online.agent, agent, self.sharing)
        return eqx.tree_at(lambda s: (s.online.agent, s.target.agent), state, (agent, target))


@functools.lru_cache(maxsize=8)
def _metrics(learner: ValueLearner) -> tuple[str, ...]:
    """Names of what an update reports; asked by tracing one of the shortest episodes, which takes the least time."""
    learner = replace(learner, spec=replace(learner.spec, horizon=1))
    state = jax.eval_shape(learner.init, jax.random.key(0))
    batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), learner.episodes.read())
    return tuple(sorted(jax.eval_shape(learner.improve, state, batch, jnp.zeros((), jnp.int32))[1]))
