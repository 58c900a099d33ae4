"""The gradient steps of MAPPO and IPPO: what a rollout says about advantages, and epochs of minibatches over it."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.learners import gae, optimisers
from prism_marl.learners.base import Signal, Trajectory
from prism_marl.learners.mappo_inputs import RolloutInputs
from prism_marl.learners.mappo_loss import mean_of, standardised, surrogate, value_cost
from prism_marl.learners.mappo_settings import PPOSettings
from prism_marl.learners.mappo_state import Actor, MAPPOState, Memory, Samples, Starts
from prism_marl.learners.regularisation import Balance, regularised
from prism_marl.learners.value_norm import ValueNorm
from prism_marl.networks.build import build_policy, build_values
from prism_marl.networks.heads import FIRST_SPREAD, deviation, log_prob_and_entropy
from prism_marl.networks.inputs import Inputs
from prism_marl.networks.mlp import MlpActor
from prism_marl.networks.recurrent import RecurrentAgent
from prism_marl.sharing.base import Sharing
from prism_marl.sharing.fups import FuPS
from prism_marl.sharing.nops import NoPS
from prism_marl.types import EnvSpec, Observation


@dataclass(frozen=True)
class MAPPOUpdates:
    """The gradient steps of one task under one sharing method. Pure functions; all state is in ``MAPPOState``."""

    settings: PPOSettings
    sharing: Sharing
    spec: EnvSpec
    width: int
    rows: int = 1

    @property
    def inputs(self) -> RolloutInputs:
        s, values = self.settings, self.settings.values(self.spec)
        return RolloutInputs(
            self.spec,
            Inputs.of(self.sharing, self.spec, last_action=False),
            central=s.central,
            critic_id=values > 1 and (s.critic_sharing == "shared" or self.critic_sharing.reads_id()),
            values=values,
            standardise=s.standardise_inputs,
            scale=s.scale_inputs,
            by_role=self.sharing.by_role(),
            looks=self.looks_at_data,
        )

    @property
    def looks_at_data(self) -> bool:
        return type(self.sharing).prepare is not Sharing.prepare

    @property
    def critic_sharing(self) -> Sharing:
        """How agents share the weights of the critic."""
        known: dict[str, Sharing] = {"shared": FuPS(), "per_agent": NoPS(), "same": self.sharing}
        return known[self.settings.critic_sharing]

    def build_agent(self, key: Key[Array, ""]) -> RecurrentAgent | MlpActor:
        """A fresh actor."""
        s = self.settings
        sizes = {"width": self.width, "recurrent": s.recurrent, "behind": s.behind_gru}
        return build_policy(self.spec, self.sharing, **sizes, key=key)

    def build_critic(self, key: Key[Array, ""]) -> RecurrentAgent | MlpActor:
        """A fresh critic."""
        s = self.settings
        return build_values(
            self.spec,
            self.critic_sharing,
            inputs=self.inputs.critic_size,
            values=self.inputs.values,
            width=s.critic_width or self.width,
            recurrent=s.recurrent,
            behind=s.behind_gru,
            key=key,
        )

    def init(self, key: Key[Array, ""]) -> MAPPOState:
        """Fresh networks."""
        s, (key_networks, key_train) = self.settings, jax.random.split(key)
        key_actor, key_critic = jax.random.split(key_networks)
        numbers = self.spec.actions if self.spec.kind == "continuous" else 0
        spread = jnp.full((self.spec.agents if s.own_deviation else 1, numbers), FIRST_SPREAD)
        actor, critic = Actor(self.build_agent(key_actor), spread), self.build_critic(key_critic)
        return MAPPOState(
            actor=actor,
            critic=critic,
            actor_optimiser=self._adam(self.sharing).init(eqx.filter(actor, eqx.is_inexact_array)),
            critic_optimiser=self._adam(self.critic_sharing).init(eqx.filter(critic, eqx.is_inexact_array)),
            actor_balance=Balance.empty(self.sharing.penalties().window),
            critic_balance=Balance.empty(self.critic_sharing.penalties().window),
            norm=ValueNorm.fresh(),
            critic_hidden=critic.initial(self.rows, self.inputs.values) if isinstance(critic, RecurrentAgent) else None,
            key=key_train,
        )

    def _adam(self, sharing: Sharing) -> optax.GradientTransformation:
        """Steps at a rate of one; the rate of the moment scales them."""
        limit = [optax.clip_by_global_norm(self.settings.grad_clip)] if self.settings.grad_clip else []
        return optax.chain(*limit, optimisers.adam(1.0, sharing, self.settings.adam_eps))

    def look_back(self, state: MAPPOState, batch: Trajectory) -> tuple[MAPPOState, Samples, Starts]:
        """What a rollout [t, b, ...] teaches: advantages and targets of values, cut into sequences."""
        assert batch.next_obs is not None and batch.truncated is not None
        s, over = self.settings, batch.terminated | batch.truncated
        fresh = jnp.concatenate([batch.memory.fresh[None] if s.recurrent else over[:1], over[:-1]])
        before, value, next_value, hidden = self._values(state, batch, fresh)
        each = batch.agent_reward if batch.agent_reward is not None else batch.reward[..., None]
        ends = over if s.time_limit_ends else batch.terminated
        flags = (ends[..., None], over[..., None])
        known = (state.norm.restore(value), state.norm.restore(next_value))
        reward = jnp.broadcast_to(each, value.shape)
        advantage = gae.advantages(reward, *flags, *known, gamma=s.gamma, lam=s.gae_lambda)
        returns, active = advantage + known[0], self.inputs.active(batch.obs).astype(jnp.float32)
        norm = state.norm.update(returns, self._counts(active, returns)) if s.value_norm else state.norm
        advantage = jnp.broadcast_to(advantage, active.shape)
        if s.advantages == "batch":
            advantage = standardised(advantage, active)
        drawn = batch.action.astype(jnp.int32) if self.spec.kind == "discrete" else batch.extras["draw"]
        parts = (batch.obs, drawn, batch.extras["log_prob"], advantage, norm.normalise(returns), value, active, fresh)
        starts = Starts(self._actor_states(state, batch, fresh), before)
        state = eqx.tree_at(lambda s: (s.norm, s.critic_hidden), state, (norm, hidden), is_leaf=lambda x: x is None)
        return state, jax.tree.map(self._cut, Samples(*parts)), jax.tree.map(self._first, starts)

    def _values(self, state: MAPPOState, batch: Trajectory, fresh: Bool[Array, "t b"]):
        """The critic's hidden states before each step, its values of what was seen and of what followed, and its hidden
        states in the end. What followed is seen with the memory of the step: one more step from each, all at once."""
        assert batch.next_obs is not None
        following = batch.next_obs._replace(role=batch.obs.role)
        x, then = self.inputs.critic(batch.obs), self.inputs.critic(following)
        role, critic, start = self._role(batch.obs, x), state.critic, state.critic_hidden
        if isinstance(critic, MlpActor):
            return None, critic(x, role)[..., 0], critic(then, role)[..., 0], None
        assert start is not None
        hidden, value = critic.unroll_from(start, x, role, fresh)
        next_value = critic(hidden, then, role)[1]
        return _before(start, hidden), value[..., 0], next_value[..., 0], hidden[-1]

    def _actor_states(self, state: MAPPOState, batch: Trajectory, fresh: Bool[Array, "t b"]):
        """The actor's hidden states before each step; sequences that begin later than the rollout need them."""
        agent = state.actor.agent
        if isinstance(agent, MlpActor):
            return None
        start = batch.memory.hidden
        if self.settings.sequence == self.settings.length:
            return start[None]
        x = self.inputs.actor(batch.obs)
        return _before(start, agent.unroll_from(start, x, self._role(batch.obs, x), fresh)[0])

    def _role(self, obs: Observation, x: Float[Array, "*b a i"]) -> Int[Array, "*b a"]:
        """Roles, which are recorded where networks ask for them."""
        return obs.role.astype(jnp.int32) if self.sharing.by_role() else jnp.zeros(x.shape[:-1], jnp.int32)

    def _cut(self, leaf: Array) -> Array:
        """[t, b, ...] as sequences [steps, sequences, ...], the first sequences first."""
        size, (length, rows, *rest) = self.settings.sequence, leaf.shape
        parts = jnp.swapaxes(leaf.reshape(length // size, size, rows, *rest), 0, 1)
        return parts.reshape(size, length // size * rows, *rest)

    def _first(self, leaf: Array) -> Array:
        """Of what stood before each step, what stood before each sequence."""
        some = leaf[:: self.settings.sequence]
        return some.reshape(some.shape[0] * some.shape[1], *some.shape[2:])

    def _counts(self, active: Float[Array, "*b a"], values: Float[Array, "*b v"]) -> Float[Array, "*b v"]:
        """Which values count: those of agents that take part; the team's always."""
        return active if values.shape == active.shape else jnp.ones_like(values)

    def improve(
        self, state: MAPPOState, given: tuple[Samples, Starts], rate: Float[Array, ""], step: Int[Array, ""]
    ) -> tuple[MAPPOState, dict[str, Array]]:
        """One gradient step of the actor and one of the critic on a minibatch; ``rate`` scales the learning rates."""
        actor, actor_optimiser, actor_balance, metrics = self._step(
            lambda actor: self._actor_loss(actor, *given, state.actor_balance),
            state.actor,
            state.actor_optimiser,
            (self.sharing, rate * self.settings.actor_lr, step),
        )
        critic, critic_optimiser, critic_balance, more = self._step(
            lambda critic: self._critic_loss(critic, *given, state.critic_balance),
            state.critic,
            state.critic_optimiser,
            (self.critic_sharing, rate * self.settings.critic_lr, step),
        )
        own = ("value", "critic_loss")
        metrics |= {name if name in own else f"critic_{name}": found for name, found in more.items()}
        return MAPPOState(
            actor,
            critic,
            actor_optimiser,
            critic_optimiser,
            actor_balance,
            critic_balance,
            state.norm,
            state.critic_hidden,
            state.key,
        ), metrics

    def _step(self, loss: Any, network: Any, optimiser: Any, how: tuple[Sharing, Any, Any]) -> tuple[Any, ...]:
        """One Adam step of a network; phased methods hold back a part of its gradient."""
        sharing, rate, step = how
        trained, fixed = eqx.partition(network, eqx.is_inexact_array)
        gradient, (balance, metrics) = jax.grad(lambda trained: loss(eqx.combine(trained, fixed)), has_aux=True)(
            trained
        )
        whole, gradient = gradient, sharing.constrain(gradient, step)
        moves, optimiser = self._adam(sharing).update(gradient, optimiser, trained)
        trained = eqx.apply_updates(trained, jax.tree.map(lambda move: rate * move, moves))
        metrics["grad_norm"] = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)))
        return sharing.after_update(eqx.combine(trained, fixed), whole), optimiser, balance, metrics

    def _actor_loss(self, actor: Actor, samples: Samples, starts: Starts, balance: Balance):
        x = self.inputs.actor(samples.obs)
        outputs = _outputs(actor.agent, starts.actor, x, self._role(samples.obs, x), samples.fresh)
        task, disorder, size, (change, outside) = self._objective(outputs, actor, samples)
        loss, balance, terms = regularised(
            task - self.settings.entropy * disorder, actor.agent, self.sharing.penalties(), balance, size
        )
        return loss, (
            balance,
            {
                "actor_loss": task,
                "entropy": disorder,
                "kl": mean_of(jnp.exp(change) - 1 - change, samples.active),
                "clip_fraction": mean_of(outside, samples.active),
                **terms,
            },
        )

    def _objective(self, outputs: Float[Array, "s n a u"], actor: Actor, samples: Samples):
        """The surrogate to be minimised, the entropy, the size of the surrogate's samples, and how the policy has
        changed."""
        s = self.settings
        log_prob, entropy = log_prob_and_entropy(
            self.spec.kind, outputs, samples.obs.avail, deviation(actor.spread), samples.drawn
        )
        advantage, active = samples.advantage, samples.active
        if s.advantages == "minibatch":
            advantage = standardised(advantage, active)
        change = log_prob - samples.log_prob
        gain, outside = surrogate(jnp.exp(change), advantage, s.ratio_clip)
        task, disorder = -mean_of(gain, active), mean_of(entropy, active)
        # The surrogate is near zero, because advantages are standardised: its size is the mean of the samples' sizes.
        size = mean_of(jnp.abs(gain), active)
        return task, disorder, size, (change, outside)

    def signal(self, state: MAPPOState, episodes: Trajectory) -> Signal:
        """PPO's objective and the entropy, on episodes as one rollout; with their first update's ratio of one."""
        length, rows = episodes.valid.shape
        whole = replace(self, settings=replace(self.settings, length=length, chunk=0))
        agents, hidden = self.spec.agents, state.actor.agent
        start = hidden.initial(rows, agents) if isinstance(hidden, RecurrentAgent) else None
        batch = whole.as_rollout(episodes)._replace(memory=Memory(start, jnp.ones(rows, bool)))  # pyright: ignore
        if isinstance(state.critic, RecurrentAgent):
            blank = state.critic.initial(rows, self.inputs.values)
            state = eqx.tree_at(lambda s: s.critic_hidden, state, blank)
        _, samples, starts = whole.look_back(state, batch)
        x, actor = self.inputs.actor(samples.obs), state.actor

        def cost(outputs: Array) -> Array:
            task, disorder, *_ = whole._objective(outputs, actor, samples)
            return task - self.settings.entropy * disorder

        role = self._role(samples.obs, x)
        return Signal(lambda agent: _outputs(agent, starts.actor, x, role, samples.fresh), cost)

    def as_rollout(self, episodes: Trajectory) -> Trajectory:
        """Whole episodes as rows of steps. After its end an episode has nobody who takes part."""
        now, then = (
            jax.tree.map(lambda leaf, part=part: leaf[part], episodes.obs) for part in (slice(-1), slice(1, None))
        )
        played = episodes.valid[..., None]
        only = (jnp.arange(self.spec.actions) == 0) & (self.spec.kind == "discrete")
        avail = jnp.where(played[..., None], now.avail, only)
        local = jnp.where(played[..., None], now.local, 0)
        return episodes._replace(obs=now._replace(local=local, avail=avail), next_obs=then)

    def _critic_loss(self, critic: RecurrentAgent | MlpActor, samples: Samples, starts: Starts, balance: Balance):
        s, x = self.settings, self.inputs.critic(samples.obs)
        value = _outputs(critic, starts.critic, x, self._role(samples.obs, x), samples.fresh)[..., 0]
        cost = value_cost(value, samples.value, samples.target, clip=s.value_clip, huber=s.huber)
        counts = self._counts(samples.active, value)
        task = s.value_coef * mean_of(cost, counts)
        loss, balance, terms = regularised(task, critic, self.critic_sharing.penalties(), balance)
        return loss, (balance, {"critic_loss": task, "value": mean_of(value, counts), **terms})


def _before(start: Float[Array, "b a h"], states: Float[Array, "t b a h"]) -> Float[Array, "t b a h"]:
    """States before each step, from those after."""
    return jnp.concatenate([start[None], states[:-1]])


def _outputs(network: RecurrentAgent | MlpActor, start: Any, x: Array, role: Array, fresh: Array) -> Array:
    if isinstance(network, MlpActor):
        return network(x, role)
    return network.unroll_from(start, x, role, fresh)[1]
