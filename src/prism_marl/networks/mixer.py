"""QMIX's mixer: a monotone function of the agents' values whose weights come from the state."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


class Affine(eqx.Module):
    """A linear layer without identities."""

    weight: Float[Array, "o i"]
    bias: Float[Array, " o"]

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        return x @ self.weight.T + self.bias


def affine(fan_in: int, fan_out: int, key: Key[Array, ""]) -> Affine:
    """A layer with PyTorch's default initialisation."""
    key_weight, key_bias = jax.random.split(key)
    bound = fan_in**-0.5
    return Affine(
        jax.random.uniform(key_weight, (fan_out, fan_in), minval=-bound, maxval=bound),
        jax.random.uniform(key_bias, (fan_out,), minval=-bound, maxval=bound),
    )


class Mixer(eqx.Module):
    """Q_tot = elu(q W1(s) + b1(s)) W2(s) + b2(s), with W1 and W2 non-negative.

    The four layers that read the state are one matrix, because one product is faster than four small GPU kernels. In
    order: the hidden layers of W1 and W2, the vector b1, and the hidden layer of b2.
    """

    from_state: Affine
    first_weight: Affine
    second_weight: Affine
    second_bias: Affine
    embed: int = eqx.field(static=True)
    hypernet: int = eqx.field(static=True)

    def __call__(self, values: Float[Array, "*b a"], state: Float[Array, "*b s"]) -> Float[Array, "*b"]:
        cuts = (self.hypernet, 2 * self.hypernet, 2 * self.hypernet + self.embed)
        hidden1, hidden2, first_bias, hidden3 = jnp.split(self.from_state(state), cuts, axis=-1)
        first = jnp.abs(self.first_weight(jax.nn.relu(hidden1)))
        first = first.reshape(*first.shape[:-1], values.shape[-1], self.embed)
        second = jnp.abs(self.second_weight(jax.nn.relu(hidden2)))
        second_bias = self.second_bias(jax.nn.relu(hidden3))[..., 0]
        # Sums, because they fuse; matrix products over 3 to 5 agents and 32 entries do not.
        mixed = jax.nn.elu(jnp.sum(values[..., None] * first, axis=-2) + first_bias)
        return jnp.sum(mixed * second, axis=-1) + second_bias


def mixer(*, agents: int, state: int, embed: int, hypernet: int, key: Key[Array, ""]) -> Mixer:
    """A new mixer."""
    keys = jax.random.split(key, 4)
    return Mixer(
        from_state=affine(state, 2 * hypernet + 2 * embed, keys[0]),
        first_weight=affine(hypernet, agents * embed, keys[1]),
        second_weight=affine(hypernet, embed, keys[2]),
        second_bias=affine(embed, 1, keys[3]),
        embed=embed,
        hypernet=hypernet,
    )
