"""MATD3's networks and gradient steps: deterministic actors and an ensemble of centralised critics."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from prism_marl.buffers.nstep import NStep, Transition, n_step
from prism_marl.buffers.ring import Ring
from prism_marl.learners.base import Signal, Trajectory
from prism_marl.learners.inputs import InputBuilder
from prism_marl.learners.regularisation import Balance, regularised
from prism_marl.learners.sequential import Sequential, Steps, follow, polyak_rates
from prism_marl.networks.build import build_agent
from prism_marl.networks.critic import Critics, critics
from prism_marl.networks.inputs import Inputs
from prism_marl.networks.mlp import MlpActor
from prism_marl.sharing.base import Sharing
from prism_marl.sharing.nops import NoPS
from prism_marl.sharing.products import apart
from prism_marl.types import EnvSpec

if TYPE_CHECKING:
    from prism_marl.learners.matd3 import MATD3

SIGNAL_STEPS = 512  # of the steps on which agents' gradients are compared, so many are looked at
AT_ONCE = 2**27  # numbers in the inputs of all agents together; beyond it agents are computed one after the other


class Batch(NamedTuple):
    """Chains of up to n steps, as their first observation and action, their return and their last observation."""

    local: Float[Array, "b a o"]
    state: Float[Array, "b s"]
    action: Float[Array, "b a u"]
    reward: Float[Array, " b"]
    discount: Float[Array, " b"]
    next_local: Float[Array, "b a o"]
    next_state: Float[Array, "b s"]


class Networks(eqx.Module):
    """Actors and critics, online or target."""

    agent: MlpActor
    critics: Critics


class MATD3State(eqx.Module):
    """All that learning carries from one update to the next."""

    online: Networks
    target: Networks
    actor_optimiser: Any
    critic_optimiser: Any
    actor_balance: Balance
    critic_balance: Balance
    updates: Int[Array, ""]  # of the critics
    critic_resets: Int[Array, ""]  # critics that were given a fresh start so far
    key: Key[Array, ""]  # never changes: counters tell its uses apart


@dataclass(frozen=True)
class MATD3Updates:
    """The gradient steps of one task under one sharing method. Pure functions; all state is in ``MATD3State``."""

    settings: "MATD3"
    sharing: Sharing
    spec: EnvSpec
    width: int
    rows: int = 1

    @property
    def inputs(self) -> Inputs:
        return Inputs.of(self.sharing, self.spec, last_action=False)

    @property
    def views(self) -> InputBuilder:
        return InputBuilder(self.spec, self.inputs, self.settings.standardise_inputs)

    @property
    def critic_sharing(self) -> Sharing:
        """How critics share weights; independent ones are identities without anything in common."""
        return self.sharing.critics() or NoPS()

    @property
    def _sequence(self) -> Sequential:
        return Sequential(self.sharing, self.settings.actor_lr)

    def _critic_adam(self) -> optax.GradientTransformation:
        return optax.adam(self.settings.critic_lr, eps=1e-8)

    def build_agent(self, key: Key[Array, ""]) -> MlpActor:
        """A fresh actor."""
        actor = build_agent(self.spec, self.sharing, width=self.width, last_action=False, key=key)
        assert isinstance(actor, MlpActor)
        return actor

    def critics(self, key: Key[Array, ""]) -> Critics:
        """Fresh critics."""
        s, spec = self.settings, self.spec
        return critics(
            self.critic_sharing,
            members=s.n_critics,
            inputs=spec.state + spec.agents * spec.actions,
            width=s.critic_width,
            norms=s.critic_layernorm or self.sharing.critics() is not None,
            key=key,
        )

    def init(self, key: Key[Array, ""]) -> MATD3State:
        """Fresh networks; the targets start as copies."""
        key_networks, key_train = jax.random.split(key)
        key_actor, key_critics = jax.random.split(key_networks)
        online = Networks(self.build_agent(key_actor), self.critics(key_critics))
        return MATD3State(
            online=online,
            target=online,
            actor_optimiser=self._sequence.init(online.agent),
            critic_optimiser=self._critic_adam().init(eqx.filter(online.critics, eqx.is_inexact_array)),
            actor_balance=Balance.empty(self.sharing.penalties().window * self.spec.agents),
            critic_balance=Balance.empty(self.critic_sharing.penalties().window * self.settings.policy_freq),
            updates=jnp.zeros((), jnp.int32),
            critic_resets=jnp.zeros((), jnp.int32),
            key=key_train,
        )

    def chains(self, ring: Ring[Transition], start: Int[Array, "*b"]) -> NStep:
        """What follows from the steps at some places of the ring."""
        return n_step(ring, start, envs=self.rows, steps=self.settings.n_step, gamma=self.settings.gamma)

    def read(self, ring: Ring[Transition], chain: NStep) -> Batch:
        """The observations and actions that belong to some chains."""
        held, start = ring.storage, chain.start
        local, state = self.views.whole(held.local[start], held.state[start])
        next_local, next_state = self.views.whole(held.next_local[chain.last], held.next_state[chain.last])
        return Batch(local, state, held.action[start], chain.reward, chain.discount, next_local, next_state)

    def update_critics(self, state: MATD3State, batch: Batch, key: Key[Array, ""]) -> tuple[MATD3State, dict]:
        """One gradient step of all critics."""
        wanted = self.targets(state.target, batch, key)
        x = self.views.critics(batch.state, batch.action)
        trained, fixed = eqx.partition(state.online.critics, eqx.is_inexact_array)

        def loss(trained):
            members = eqx.combine(trained, fixed)
            values = members(x)
            task = jnp.sum(jnp.mean((values - wanted) ** 2, axis=1))
            total, balance, terms = regularised(task, members, self.critic_sharing.penalties(), state.critic_balance)
            metrics = {"critic_loss": task, "q": jnp.mean(values), "loss": total}
            return total, (balance, metrics | {f"critic_{name}": value for name, value in terms.items()})

        gradient, (balance, metrics) = jax.grad(loss, has_aux=True)(trained)
        updates, optimiser = self._critic_adam().update(gradient, state.critic_optimiser)
        members = eqx.combine(apart(eqx.apply_updates(trained, updates)), fixed)
        places = lambda s: (s.online.critics, s.critic_optimiser, s.critic_balance, s.updates)  # noqa: E731
        return eqx.tree_at(places, state, (members, optimiser, balance, state.updates + 1)), metrics

    def targets(self, target: Networks, batch: Batch, key: Key[Array, ""]) -> Float[Array, " b"]:
        """The n-step return, then the smallest target value of the target actors' actions with clipped noise."""
        s = self.settings
        action = self.actions(target.agent, batch.next_local, batch.next_state)
        noise = jnp.clip(s.target_noise * jax.random.normal(key, action.shape), -s.target_clip, s.target_clip)
        action = apart(jnp.clip(action + noise, -1, 1))  # fused with what follows, its noise is sampled many times over
        values = target.critics(self.views.critics(batch.next_state, action))
        return batch.reward + batch.discount * jnp.min(values, axis=0)

    def update_actors(self, state: MATD3State, batch: Batch, step: Int[Array, ""]) -> tuple[MATD3State, dict]:
        """One gradient step for each agent in turn, the others' actions as stored; then the targets follow."""
        s, spec = self.settings, self.spec
        members = state.online.critics
        hidden = members.first(self.views.critics(batch.state, batch.action))  # the same for all agents
        by_action = members.fc1.dense()[:, :, spec.state :]
        by_action = by_action.reshape(*by_action.shape[:2], spec.agents, spec.actions)

        def inputs(agent):
            return self.views.agents(batch.local, batch.state, agent[None])

        def task(alone: MlpActor, now) -> Float[Array, ""]:
            agent, weight, stored, *prepared = now
            x = prepared[0] if prepared else inputs(agent)
            action = alone(x, jnp.zeros(x.shape[:-1], jnp.int32))[:, 0]
            values = members.changed(hidden, action - stored, weight)
            return -jnp.mean(values if s.actor_q == "mean" else values[0])

        start = Steps(state.online.agent, state.actor_optimiser, state.actor_balance)
        agents = (jnp.arange(spec.agents), jnp.moveaxis(by_action, 2, 0), jnp.moveaxis(batch.action, 1, 0))
        if self._at_once(batch.state):
            agents = (*agents, jax.vmap(inputs)(agents[0]))
        (actor, optimiser, balance), metrics = self._sequence.run(start, task, agents, step)
        rates = polyak_rates(actor, self.sharing, s.tau, agents=spec.agents, repeat=s.repeat_shared_polyak)
        target = Networks(
            follow(state.target.agent, actor, rates), follow(state.target.critics, members, jnp.asarray(s.tau))
        )
        places = lambda s: (s.online.agent, s.target, s.actor_optimiser, s.actor_balance)  # noqa: E731
        return eqx.tree_at(places, state, (actor, target, optimiser, balance)), metrics

    def signal(self, state: MATD3State, episodes: Trajectory) -> Signal:
        """What the critics say of each agent's action beside the others' as they were played, over the steps."""
        every = max(1, episodes.valid.size // SIGNAL_STEPS)
        obs = jax.tree.map(lambda leaf: leaf[:-1], episodes.obs)
        parts = (obs.local, obs.state, episodes.action, episodes.valid)
        local, seen, stored, valid = (leaf.reshape(-1, *leaf.shape[2:])[::every] for leaf in parts)
        members, first = state.online.critics, self.settings.actor_q == "first"

        def of_one(agent: Array, outputs: Array) -> Array:
            own = (jnp.arange(self.spec.agents) == agent)[:, None]
            values = members(self.views.critics(seen, jnp.where(own, outputs, stored)))
            value = values[0] if first else jnp.mean(values, axis=0)
            return -jnp.sum(jnp.where(valid, value, 0.0)) / jnp.maximum(jnp.sum(valid), 1)

        def cost(outputs: Array) -> Array:
            agents = jnp.arange(self.spec.agents)
            return jnp.sum(jax.lax.map(lambda agent: of_one(agent, outputs), agents))

        return Signal(lambda actor: self.actions(actor, local, seen), cost)

    def reset_critic(self, state: MATD3State, key: Key[Array, ""]) -> MATD3State:
        """The next critic in turn gets a fresh start; its target follows as always."""
        member = state.critic_resets % self.settings.n_critics
        members = self.critic_sharing.reset_critic(state.online.critics, member, key)
        return eqx.tree_at(lambda s: (s.online.critics, s.critic_resets), state, (members, state.critic_resets + 1))

    def actions(self, actor: MlpActor, local: Float[Array, "b a o"], state: Float[Array, "b s"]):
        """Actions [b, a, u] of all agents, without noise."""
        agents = jnp.arange(self.spec.agents)
        if self._at_once(state):
            x = self.views.agents(local, state, agents)
            return actor(x, jnp.broadcast_to(agents, x.shape[:-1]))

        def one(agent):
            x = self.views.agents(local, state, agent[None])
            return actor.alone(actor.identity_of(agent))(x, jnp.zeros(x.shape[:-1], jnp.int32))[:, 0]

        return jnp.moveaxis(jax.lax.map(one, agents), 0, 1)

    def _at_once(self, state: Float[Array, "b s"]) -> bool:
        """Whether there is room for what all agents read together."""
        return state.shape[0] * self.spec.agents * self.inputs.size(self.spec) <= AT_ONCE
