"""The adaptive coefficient that keeps the diversity term at a fixed ratio to the task loss (docs/sharing.md)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prism_marl.sharing.base import Penalties, network_regularisers


class Balance(eqx.Module):
    """The latest task and diversity losses, as two rings of fixed length."""

    task: Float[Array, " w"]
    diversity: Float[Array, " w"]
    count: Int[Array, ""]

    @staticmethod
    def empty(window: int) -> "Balance":
        return Balance(jnp.zeros(window), jnp.zeros(window), jnp.zeros((), jnp.int32))

    def push(self, task: Float[Array, ""], diversity: Float[Array, ""]) -> "Balance":
        """Remember the current losses; no gradient flows through the memory."""
        index = self.count % self.task.size
        return Balance(
            self.task.at[index].set(jax.lax.stop_gradient(task)),
            self.diversity.at[index].set(jax.lax.stop_gradient(diversity)),
            self.count + 1,
        )

    def coefficient(self, beta: float) -> Float[Array, ""]:
        """|beta * mean(task) / mean(diversity)|, or beta while the diversity term is exactly zero."""
        filled = jnp.minimum(self.count, self.task.size)
        task, diversity = jnp.sum(self.task) / filled, jnp.sum(self.diversity) / filled
        safe = jnp.where(diversity == 0, 1.0, diversity)
        return jnp.where(diversity == 0, beta, jnp.abs(beta * task / safe))


def regularised(
    task: Float[Array, ""],
    network: Any,
    penalties: Penalties,
    balance: Balance,
    size: Float[Array, ""] | None = None,
) -> tuple[Float[Array, ""], Balance, dict[str, Float[Array, ""]]]:
    """The task loss with the terms of the sharing method, the memory behind their weights, and the terms themselves.

    ``size`` is what the adaptive weight of the diversity term goes by, where the loss itself says nothing about its
    size: a policy's surrogate is near zero whatever its gradient.
    """
    terms = network_regularisers(network)
    loss, metrics = task, dict(terms)
    for name, weight in penalties.fixed:
        if name in terms:
            loss = loss + weight * terms[name]
    if "diversity" in terms:
        balance = balance.push(task if size is None else size, terms["diversity"])
        scale = balance.coefficient(penalties.diversity) if penalties.adaptive else penalties.diversity
        loss = loss + scale * terms["diversity"]
        metrics["diversity_coefficient"] = jnp.asarray(scale)
    return loss, balance, metrics
