"""What the outputs of a policy mean: a categorical distribution over legal actions, or a Gaussian around means.

``final_action`` is the rule by which a trained policy acts, here and wherever it is exported to.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.types import ActionKind

ILLEGAL = -1e10  # logit of an action that is not legal: its probability is exactly 0
LARGEST_DEVIATION = 0.5  # HARL's: a deviation is half a sigmoid of the parameter
FIRST_SPREAD = 1.0  # ... which starts at 1, so the deviation starts at 0.37
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


def final_action(kind: ActionKind, outputs: Float[Array, "*b a u"], avail: Bool[Array, "*b a u"]) -> Array:
    """The best legal action, or the mean cut to the range of actions, [-1, 1]."""
    if kind == "discrete":
        return jnp.argmax(masked(outputs, avail), axis=-1).astype(jnp.int32)
    return jnp.clip(outputs, -1.0, 1.0)


def masked(logits: Float[Array, "*b u"], avail: Bool[Array, "*b u"]) -> Float[Array, "*b u"]:
    return jnp.where(avail, logits, ILLEGAL)


def sample(
    kind: ActionKind, key: Key[Array, ""], outputs: Float[Array, "*b a u"], avail: Bool[Array, "*b a u"], size: Any
) -> tuple[Array, dict[str, Array]]:
    """An action, and what learning must know of it: its log-probability, and for continuous actions, whose deviations
    are ``size``, the number that was drawn, because what is played is cut to [-1, 1]."""
    if kind == "discrete":
        every = jax.nn.log_softmax(masked(outputs, avail))
        action = _inverted(jnp.exp(every), jax.random.uniform(key, every.shape[:-1]))
        return action, {"log_prob": chosen(every, action)}
    draw = outputs + size * jax.random.normal(key, outputs.shape)
    return jnp.clip(draw, -1.0, 1.0), {"draw": draw, "log_prob": _density(draw, outputs, size)}


def log_prob_and_entropy(
    kind: ActionKind, outputs: Float[Array, "*b a u"], avail: Bool[Array, "*b a u"], size: Any, drawn: Array
) -> tuple[Float[Array, "*b a"], Float[Array, "*b a"]]:
    """The log-probability of what was drawn, and the entropy; illegal actions have no part in either."""
    if kind == "discrete":
        every = jax.nn.log_softmax(masked(outputs, avail))
        return chosen(every, drawn), -jnp.sum(jnp.where(avail, jnp.exp(every) * every, 0.0), axis=-1)
    entropy = jnp.sum(0.5 + HALF_LOG_TAU + jnp.log(size), axis=-1)
    return _density(drawn, outputs, size), jnp.broadcast_to(entropy, outputs.shape[:-1])


def deviation(spread: Float[Array, "*a u"]) -> Float[Array, "*a u"]:
    """Deviations of continuous actions; they do not depend on the state."""
    return LARGEST_DEVIATION * jax.nn.sigmoid(spread)


def chosen(every: Float[Array, "*b u"], action: Int[Array, "*b"]) -> Float[Array, "*b"]:
    """The entry of the chosen action, by a comparison that fuses where a gather would not."""
    return jnp.sum(jnp.where(jnp.arange(every.shape[-1]) == action[..., None], every, 0.0), axis=-1)


def _density(draw: Array, mean: Array, size: Array) -> Float[Array, "*b a"]:
    return jnp.sum(-0.5 * ((draw - mean) / size) ** 2 - jnp.log(size) - HALF_LOG_TAU, axis=-1)


def _inverted(probability: Float[Array, "*b u"], uniform: Float[Array, "*b"]) -> Int[Array, "*b"]:
    """One uniform number makes a choice: the first action at which the sum of probabilities passes it."""
    sums = jnp.cumsum(probability, axis=-1)
    passed = sums > uniform[..., None] * sums[..., -1:]
    return jnp.argmax(passed, axis=-1).astype(jnp.int32)
