"""Do agents pull shared parameters in opposite directions? The cosine of their gradients, layer by layer.

The gradient of an agent is the part of the learner's own gradient that comes through this agent's outputs; the parts of
all agents add up to the whole.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prism_marl.learners.base import Signal
from prism_marl.sharing.base import RoleLinear, role_layers

WHOLE = "all"  # the name under which all layers count as one
MOST_COMPARED = 16  # agents: pairs of more are neither read nor computed quickly


def compared(agents: int) -> np.ndarray:
    """The agents that are compared with each other: all, or evenly spaced ones of a large team."""
    return np.unique(np.linspace(0, agents - 1, min(agents, MOST_COMPARED)).round().astype(np.int32))


def agent_gradients(signal: Signal, agent: Any, chosen: Int[Array, " k"]) -> Any:
    """The network with a gradient of each chosen agent in place of every trained array: a first axis of agents."""
    trained, fixed = eqx.partition(agent, eqx.is_inexact_array)
    outputs, pull_back = jax.vjp(lambda trained: signal.apply(eqx.combine(trained, fixed)), trained)
    slope = jax.grad(signal.cost)(outputs)
    team = jnp.arange(outputs.shape[-2])

    def of_one(index: Int[Array, ""]) -> Any:
        return pull_back(jnp.where((team == index)[:, None], slope, 0.0))[0]

    return jax.lax.map(of_one, chosen)  # one after the other: a network of each at a time is enough


def cosines(gradients: Any) -> dict[str, Float[Array, "k k"]]:
    """Of every two agents in every layer and in all together: the cosine of their gradients on the parameters that both
    use; NaN where they use none in common, or one of them gets no gradient."""
    sums = {name: _products(layer) for name, layer in role_layers(gradients).items()}
    sums[WHOLE] = (sum(product for product, _ in sums.values()), sum(square for _, square in sums.values()))
    return {name: _cosine(*parts) for name, parts in sums.items()}


def _cosine(product: Float[Array, "k k"], square: Float[Array, "k k"]) -> Float[Array, "k k"]:
    size = jnp.sqrt(square * square.T)
    return jnp.where(size > 0, jnp.clip(product / jnp.where(size > 0, size, 1.0), -1.0, 1.0), jnp.nan)


def _products(layer: RoleLinear) -> tuple[Any, Any]:
    """Of agents i and j: the product of their gradients, and the square of i's on what j uses, too."""
    product, square = jnp.zeros(()), jnp.zeros(())
    for leaf, private in _leaves(layer):
        rows = leaf.reshape(*leaf.shape[:2], -1) if private else leaf.reshape(len(leaf), 1, -1)
        # A private array has a row for each identity; those without any gradient belong to others.
        used = jnp.any(rows != 0, axis=-1) if private else jnp.ones(rows.shape[:2], bool)
        product += jnp.einsum("imf,jmf->ij", rows, rows)
        square += jnp.sum(rows**2, axis=-1) @ used.T.astype(rows.dtype)
    return product, square


def _leaves(module: Any, *, private: bool = False) -> list[tuple[Array, bool]]:
    """The gradients of a layer, each with whether its first axis after the agents' is the identity."""
    found: list[tuple[Array, bool]] = []
    for field in dataclasses.fields(module):
        if field.metadata.get("static"):
            continue
        value, own = getattr(module, field.name), private or bool(field.metadata.get("private"))
        if isinstance(value, eqx.Module):
            found += _leaves(value, private=own)
        else:
            found += [(leaf, own) for leaf in jax.tree.leaves(value)]
    return found
