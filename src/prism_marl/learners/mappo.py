"""MAPPO and IPPO: stochastic policies learned by PPO from their own rollouts.

MAPPO's critic sees the state, IPPO's what an agent observes.
"""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from prism_marl.buffers.ring import Ring, empty_ring
from prism_marl.learners.actions import explored
from prism_marl.learners.base import Clock, Collection, Deployment, Mode, Trajectory
from prism_marl.learners.inputs import InputBuilder
from prism_marl.learners.log import Log
from prism_marl.learners.mappo_settings import PPOSettings
from prism_marl.learners.mappo_state import MAPPOState, Memory, Samples, Starts
from prism_marl.learners.mappo_updates import MAPPOUpdates
from prism_marl.learners.numpy_actors import GaussianPolicy, NumpyGaussian, dense_policy, outputs
from prism_marl.networks.heads import deviation, final_action, sample
from prism_marl.networks.mlp import MlpActor
from prism_marl.networks.recurrent import RecurrentAgent
from prism_marl.sharing.base import Experience, Sharing
from prism_marl.sharing.cluster import RECORDS
from prism_marl.sharing.dense import materialise
from prism_marl.types import EnvSpec, Observation


@dataclass(frozen=True)
class MAPPO(PPOSettings):
    """PPO on rollouts, recurrent or feed-forward, with a centralised critic that reads the state."""

    label: ClassVar[str] = "MAPPO"
    central: ClassVar[bool] = True

    algorithm: Literal["mappo"] = "mappo"

    def learner(self, sharing: Sharing, spec: EnvSpec, *, width: int, rows: int = 1, steps: int = 0) -> "MAPPOLearner":
        """The learner that these settings stand for."""
        return MAPPOLearner(self, sharing, spec, width, rows, steps)


@dataclass(frozen=True)
class IPPO(PPOSettings):
    """As MAPPO, with critics that read only the observation of an agent."""

    label: ClassVar[str] = "IPPO"
    central: ClassVar[bool] = False

    algorithm: Literal["ippo"] = "ippo"

    def learner(self, sharing: Sharing, spec: EnvSpec, *, width: int, rows: int = 1, steps: int = 0) -> "MAPPOLearner":
        """The learner that these settings stand for."""
        return MAPPOLearner(self, sharing, spec, width, rows, steps)


class Policy(eqx.Module):
    """All that acting reads, where it is not a few plain matrices."""

    agent: RecurrentAgent | MlpActor
    deviation: Float[Array, "a u"]


@dataclass(frozen=True)
class MAPPOLearner(MAPPOUpdates):
    """MAPPO or IPPO for one task and one sharing method: one round of epochs for each rollout."""

    steps: int = 0  # environment steps of a whole run; 0 = not known

    @property
    def collection(self) -> Collection:
        return Collection("steps", self.settings.length)

    @property
    def metrics(self) -> tuple[str, ...]:
        return _metrics(self)

    @property
    def checks(self) -> tuple[str, ...]:
        return ()

    def counters(self) -> tuple[()]:
        return ()

    def key(self, state: MAPPOState, clock: Clock, purpose: str) -> tuple[MAPPOState, Key[Array, ""]]:
        """Every key is folded from the training key, the purpose and the iteration."""
        number = {"collect": 0, "change": 1, "update": 2}[purpose]
        return state, jax.random.fold_in(jax.random.fold_in(state.key, number), clock.iteration)

    @property
    def plain(self) -> bool:
        """Whether the policy is a few plain matrices, as numpy can compute it."""
        s = self.settings
        return self.spec.kind == "continuous" and not (s.recurrent or s.scale_inputs or self.sharing.by_role())

    @property
    def _views(self) -> InputBuilder:
        return InputBuilder(self.spec, self.inputs.actors, self.settings.standardise_inputs)

    def policy(self, state: MAPPOState) -> Policy | GaussianPolicy:
        agent, size = state.actor.agent, deviation(state.actor.spread)
        if self.plain:
            assert isinstance(agent, MlpActor)
            return GaussianPolicy(dense_policy(agent, self.spec.agents), size)
        return Policy(materialise(agent), size)

    def numpy(self) -> NumpyGaussian | None:
        return NumpyGaussian(self.spec, self._views, explore=0.0) if self.plain else None

    def memory(self, policy: Any, *batch: int) -> Memory | tuple[()]:
        if not self.settings.recurrent:
            return ()
        return Memory(policy.agent.initial(*batch, self.spec.agents), jnp.ones(batch, bool))

    def act(
        self, policy: Any, memory: Any, obs: Observation, key: Key[Array, ""], step: Int[Array, ""], mode: Mode
    ) -> tuple[Any, Array, dict[str, Array]]:
        """Drawn from the policy, or its final action, or uniform over what is legal."""
        kind, nothing = self.spec.kind, jnp.zeros(obs.role.shape)
        if mode == "random":
            if kind == "discrete":
                action = explored(key, obs.role * 0, obs.avail, jnp.ones(())).astype(jnp.int32)
                return memory, action, {"log_prob": nothing}
            action = jax.random.uniform(key, obs.avail.shape, minval=-1.0, maxval=1.0)
            return memory, action, {"draw": action, "log_prob": nothing}
        memory, found = self._outputs(policy, memory, obs)
        if mode == "greedy":
            extras = {"log_prob": nothing} | ({} if kind == "discrete" else {"draw": found})
            return memory, final_action(kind, found, obs.avail), extras
        action, extras = sample(kind, key, found, obs.avail, policy.deviation)
        return memory, action, extras

    def _outputs(self, policy: Any, memory: Any, obs: Observation) -> tuple[Any, Array]:
        """The memory after a step, and what the network says: logits or means."""
        x = self.inputs.actor(obs)
        if self.plain:
            return memory, outputs(policy.means, x)
        if not self.settings.recurrent:
            return memory, policy.agent(x, obs.role)
        hidden, found = policy.agent(memory.hidden, x, obs.role)
        return Memory(hidden, jnp.zeros_like(memory.fresh)), found

    def template(self) -> Trajectory:
        return self.inputs.template(self.settings.length)

    def buffer(self) -> Any:
        """Nothing is replayed; methods that look at data find the latest of it here."""
        if not self.looks_at_data:
            return ()
        some = jax.eval_shape(lambda: self.inputs.no_experience(1))
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), some)
        return empty_ring(one, max(RECORDS // self.spec.agents, self.settings.length * self.rows))

    def add(self, buffer: Any, batch: Trajectory) -> Any:
        return buffer.add(self.inputs.experience(batch)) if isinstance(buffer, Ring) else buffer

    def experience(self, buffer: Any) -> Experience:
        """The newest transitions; none if the sharing method does not look at them."""
        if not isinstance(buffer, Ring):
            return self.inputs.no_experience(1)
        found = buffer.newest(buffer.capacity)
        held = jnp.arange(buffer.capacity) < buffer.count
        return found._replace(valid=found.valid & held[:, None])

    def update(
        self, state: MAPPOState, buffer: Any, batch: Trajectory, log: Log, step: Int[Array, ""], clock: Clock
    ) -> tuple[MAPPOState, Log, Clock]:
        """All epochs over one rollout."""
        del buffer
        s = self.settings
        state, samples, starts = self.look_back(state, batch)
        number, rate = samples.fresh.shape[1], self.rate(clock)
        keys = jax.random.split(self.key(state, clock, "update")[1], s.epochs)
        order = jax.vmap(lambda key: jax.random.permutation(key, number))(keys)

        def one(carry: tuple[MAPPOState, Log], chosen: Int[Array, " n"] | None):
            given = (samples, starts)
            if chosen is not None:  # sequences are the second axis of samples and the first of what precedes them
                given = (
                    jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=1), samples),
                    jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=0), starts),
                )
            state, metrics = self.improve(carry[0], given, rate, step)
            return (state, carry[1].add(metrics, step)), None

        parts = None if s.minibatches == 1 else order.reshape(s.epochs * s.minibatches, -1)
        updates = s.epochs * s.minibatches
        (state, log), _ = jax.lax.scan(one, (state, log), parts, length=updates)
        return state, log, clock._replace(summed=clock.summed + updates)

    def rate(self, clock: Clock) -> Float[Array, ""]:
        """By what learning rates are multiplied: it falls to zero along the run, where that is asked for."""
        if not (self.settings.lr_decay and self.steps):
            return jnp.ones(())
        before = (clock.iteration - 1) * (self.settings.length * self.rows)
        return jnp.maximum(0.0, 1 - before / self.steps)

    def agent(self, state: MAPPOState) -> RecurrentAgent | MlpActor:
        return state.actor.agent

    def deployment(self, state: MAPPOState) -> Deployment:
        """The likeliest legal action, or the mean; training samples."""
        s, discrete = self.settings, self.spec.kind == "discrete"
        return Deployment(
            agent=state.actor.agent,
            inputs=self.inputs.actors,
            rule="argmax" if discrete else "direct",
            exploration="softmax" if discrete else "noise",
            amount=0.0 if discrete else deviation(state.actor.spread),
            scale=1 / self.spec.magnitude if s.scale_inputs else 1.0,
            standardise=s.standardise_inputs,
        )

    def with_agent(self, state: MAPPOState, agent: RecurrentAgent | MlpActor) -> MAPPOState:
        """A critic that is shared in the same way has the actor's labels and node masks at once."""
        critic = state.critic
        if self.settings.critic_sharing == "same":
            critic = _with_labels(critic, agent)
        return eqx.tree_at(lambda s: (s.actor.agent, s.critic), state, (agent, critic))

    def row(self, step: int) -> dict[str, float]:
        return {}


def _with_labels(critic: Any, agent: Any) -> Any:
    """The critic with all fixed arrays of the actor that have the same place and shape."""
    of_agent = dict(jax.tree_util.tree_leaves_with_path(agent))

    def one(path: Any, leaf: Array) -> Array:
        found = of_agent.get(path)
        return leaf if eqx.is_inexact_array(leaf) or found is None or found.shape != leaf.shape else found

    return jax.tree_util.tree_map_with_path(one, critic)


@functools.lru_cache(maxsize=8)
def _metrics(learner: MAPPOLearner) -> tuple[str, ...]:
    """Names of what an update reports; asked by tracing one, which takes a while."""

    def both(state: MAPPOState, batch: Trajectory) -> dict[str, Array]:
        memory: Any = ()
        if learner.settings.recurrent:
            agent = state.actor.agent
            assert isinstance(agent, RecurrentAgent)
            memory = Memory(agent.initial(learner.rows, learner.spec.agents), jnp.ones(learner.rows, bool))
        state, samples, starts = learner.look_back(state, batch._replace(memory=memory))
        given: tuple[Samples, Starts] = (samples, starts)
        return learner.improve(state, given, jnp.ones(()), jnp.zeros((), jnp.int32))[1]

    batch = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((leaf.shape[0], learner.rows, *leaf.shape[1:]), leaf.dtype),
        learner.template(),
    )
    state = jax.eval_shape(learner.init, jax.random.key(0))
    return tuple(sorted(jax.eval_shape(both, state, batch)))
