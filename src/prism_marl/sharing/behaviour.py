"""How differently identities behave: what a network says to the same observations when each identity is asked."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from prism_marl.sharing.base import Experience

MOST_ROWS = 256  # observations that are compared
MOST_PAIRS = 2**22  # numbers of a comparison of all pairs over all rows


def observations(experience: Experience, key: Key[Array, ""]) -> tuple[Float[Array, "n o"], Float[Array, " n"]]:
    """Random observations of any agents, and weights: 0 for those that are padding or of the dead."""
    steps, agents, _ = experience.local.shape
    number = min(MOST_ROWS, steps * agents, max(1, MOST_PAIRS // agents**2))
    valid = experience.valid.reshape(-1).astype(jnp.float32)
    _, chosen = jax.lax.top_k(valid + jax.random.uniform(key, valid.shape), number)  # what is valid comes first
    return experience.local.reshape(steps * agents, -1)[chosen], valid[chosen]


def system_diversity(outputs: Float[Array, "n m u"], weight: Float[Array, " n"]) -> Float[Array, ""]:
    """System neural diversity (Bettini et al., 2023): the distance of two identities' outputs, as the mean over pairs
    and over rows. Between Gaussians of equal deviation it is the Wasserstein distance; 0 without rows or pairs."""
    identities = outputs.shape[1]
    apart = pairwise_distances(outputs)
    pairs = max(identities * (identities - 1), 1)
    each = jnp.sum(apart, axis=(1, 2)) / pairs
    return jnp.sum(weight * each) / jnp.maximum(jnp.sum(weight), 1.0)


def pairwise_distances(points: Float[Array, "*b m u"]) -> Float[Array, "*b m m"]:
    """Euclidean distances of all pairs."""
    size = jnp.sum(points**2, axis=-1)
    inner = jnp.einsum("...mu,...ku->...mk", points, points, precision=jax.lax.Precision.HIGHEST)
    squared = size[..., :, None] + size[..., None, :] - 2 * inner
    return jnp.sqrt(jnp.maximum(squared * (1 - jnp.eye(points.shape[-2])), 0.0))
