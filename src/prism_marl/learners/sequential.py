"""Training of actors one after the other: each agent's gradient step sees the steps of those before it.

A scan over agents, so that the program for a thousand agents is as long as that for two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from prism_marl.learners import optimisers
from prism_marl.learners.regularisation import Balance, regularised
from prism_marl.networks.mlp import MlpActor
from prism_marl.sharing.base import Sharing
from prism_marl.sharing.single import put_row, row

AT_ONCE = 8  # agents that step side by side where their networks have nothing in common


class Steps(NamedTuple):
    """What the sequence carries from one agent to the next."""

    actor: MlpActor
    optimiser: Any
    balance: Balance


@dataclass(frozen=True)
class Sequential:
    """Adam steps of all agents in index order on one network, or on as many as there are identities.

    One optimiser serves everything that is shared, and with it the private rows of all agents: the rows of those whose
    turn it is not get a zero gradient and still move with their momentum, as one optimiser over one network does.
    Where identities have no number in common, every identity has an optimiser of its own that only its steps touch.
    """

    sharing: Sharing
    lr: float

    def _adam(self) -> optax.GradientTransformation:
        return optimisers.adam(self.lr, self.sharing)

    def init(self, actor: MlpActor) -> Any:
        """Moments before the first step: with an axis of identities where these are networks of their own."""
        trainable = eqx.filter(actor, eqx.is_inexact_array)
        return (
            jax.vmap(self._adam().init)(trainable) if self.sharing.separate_networks else self._adam().init(trainable)
        )

    def run(
        self,
        start: Steps,
        task: Callable[[MlpActor, Any], Float[Array, ""]],
        agents: Any,
        step: Int[Array, ""],
    ) -> tuple[Steps, dict[str, Array]]:
        """``task(alone, now)`` is the loss of the agent whose part of ``agents`` is ``now``, given its network alone;
        ``agents`` is (indices, anything else per agent). Returns means of the metrics over agents."""

        if self.sharing.separate_networks and start.actor.clusters is None:
            return self._independent(start, task, agents, step)

        def turn(carry: Steps, now):
            return self._step(carry, task, now, step)

        end, metrics = jax.lax.scan(turn, start, agents)
        return end, jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), metrics)

    def _independent(self, start: Steps, task, agents, step) -> tuple[Steps, dict[str, Array]]:
        """One network for each agent: the order is of no account, so some agents step at once."""
        trained, fixed = eqx.partition(start.actor, eqx.is_inexact_array)
        first = jnp.zeros((), jnp.int32)

        def one(now):
            own, moments, now = now
            own, moments = jax.tree.map(lambda leaf: leaf[None], (own, moments))
            adam = jax.vmap(self._adam().update)
            own, moments, _, metrics, _ = self._adjust(adam, own, fixed, moments, start.balance, task, first, now, step)
            return *jax.tree.map(lambda leaf: leaf[0], (own, moments)), metrics

        trained, optimiser, metrics = jax.lax.map(one, (trained, start.optimiser, agents), batch_size=AT_ONCE)
        metrics = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), metrics)
        return Steps(eqx.combine(trained, fixed), optimiser, start.balance), metrics

    def _step(self, carry: Steps, task, now, step) -> tuple[Steps, dict[str, Array]]:
        identity = carry.actor.identity_of(now[0])
        trained, fixed = eqx.partition(carry.actor, eqx.is_inexact_array)
        if not self.sharing.separate_networks:
            trained, optimiser, balance, metrics, gradient = self._adjust(
                self._adam().update, trained, fixed, carry.optimiser, carry.balance, task, identity, now, step
            )
            actor = self.sharing.after_update(eqx.combine(trained, fixed), gradient)
            return Steps(actor, optimiser, balance), metrics
        own, moments = row((trained, carry.optimiser), identity)
        first = jnp.zeros_like(identity)
        own, moments, balance, metrics, _ = self._adjust(
            jax.vmap(self._adam().update), own, fixed, moments, carry.balance, task, first, now, step
        )
        trained, optimiser = put_row((trained, carry.optimiser), (own, moments), identity)
        return Steps(eqx.combine(trained, fixed), optimiser, balance), metrics

    def _adjust(self, adam, trained, fixed, moments, balance, task, identity, now, step):
        def loss(trained):
            actor = eqx.combine(trained, fixed)
            value = task(actor.alone(identity), now)
            total, after, terms = regularised(value, actor, self.sharing.penalties(), balance)
            return total, (after, {"actor_loss": value, **terms})

        gradient, (balance, metrics) = jax.grad(loss, has_aux=True)(trained)
        updates, moments = adam(self.sharing.constrain(gradient, step), moments)
        return eqx.apply_updates(trained, updates), moments, balance, metrics, gradient


def polyak_rates(actor: MlpActor, sharing: Sharing, tau: float, *, agents: int, repeat: bool) -> Float[Array, "*m"]:
    """How far the target actor moves. With ``repeat`` a network moves once for each agent that uses it, as a loop over
    agents does when several of them are the same object; otherwise once."""
    if not repeat:
        return jnp.asarray(tau)
    if not sharing.separate_networks:
        return jnp.asarray(1 - (1 - tau) ** agents)
    if actor.clusters is None:
        return jnp.asarray(tau)
    identities = sharing.identities(agents, roles=1)
    users = jnp.sum(actor.clusters[:, None] == jnp.arange(identities), axis=0)
    return 1 - (1 - tau) ** users.astype(jnp.float32)


def follow(target: Any, online: Any, rate: Float[Array, "*m"]) -> Any:
    """The target after a step towards the online network; a rate for each row of the first axis, or one for all."""

    def moved(old, new):
        if not eqx.is_inexact_array(old):
            return new
        share = rate.reshape(*rate.shape, *[1] * (old.ndim - rate.ndim))
        return old + share * (new - old)

    return jax.tree.map(moved, target, online)
