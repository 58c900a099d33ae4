"""Sharing layers in somebody else's JAX code: no environment, no trainer, only ``Prism().linear`` and optax.

Four agents see the same eight numbers, and each must weigh them in its own way. A layer takes ``x`` of shape
[..., agent, feature] and an identity array that says who stands at each place of the agent axis; here the places are
shuffled for every sample, and one call serves them all.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from prism_marl.sharing import Prism, RoleLinear, network_regularisers

AGENTS, FEATURES, WIDTH, BATCH = 4, 8, 32, 64


class Net(eqx.Module):
    """Two layers."""

    first: RoleLinear
    last: RoleLinear

    def __call__(self, x, identity):
        return self.last(jax.nn.relu(self.first(x, identity)), identity)


def build(key, sharing: Prism) -> Net:
    """``kind`` says where a layer stands, ``depth`` which one it is."""
    key_first, key_last = jax.random.split(key)
    return Net(
        sharing.linear(FEATURES, WIDTH, identities=AGENTS, key=key_first, kind="hidden", depth=0),
        sharing.linear(WIDTH, FEATURES, identities=AGENTS, key=key_last, kind="hidden", depth=1),
    )


def sample(key, weight):
    """Inputs [batch, agent, feature], who stands where [batch, agent], and targets."""
    key_x, key_identity = jax.random.split(key)
    x = jnp.repeat(jax.random.normal(key_x, (BATCH, 1, FEATURES)), AGENTS, axis=1)
    places = jnp.tile(jnp.arange(AGENTS), (BATCH, 1))
    identity = jax.random.permutation(key_identity, places, axis=1, independent=True)
    return x, identity, x * weight[identity]


def main(steps: int = 2_000) -> tuple[float, float]:
    """Train; print the error at the start, at the end, and the least that one function for all can reach."""
    sharing = Prism()
    weight = jax.random.uniform(jax.random.key(2), (AGENTS, FEATURES))
    optimiser = optax.adam(3e-3)

    def loss(net: Net, key):
        x, identity, target = sample(key, weight)
        error = jnp.mean((net(x, identity) - target) ** 2)
        return error + sharing.ortho * network_regularisers(net)["orthogonality"], error

    @jax.jit
    def train(net: Net, keys):
        def step(carry, key):
            net, state = carry
            gradient, error = eqx.filter_grad(loss, has_aux=True)(net, key)
            updates, state = optimiser.update(gradient, state)
            return (eqx.apply_updates(net, updates), state), error

        return jax.lax.scan(step, (net, optimiser.init(eqx.filter(net, eqx.is_inexact_array))), keys)

    net = build(jax.random.key(0), sharing)
    _, errors = train(net, jax.random.split(jax.random.key(1), steps))
    before, after, floor = float(errors[0]), float(errors[-100:].mean()), float(jnp.mean(jnp.var(weight, axis=0)))
    print(f"error before {before:.4f}, after {after:.4f}; one function for all cannot go below {floor:.4f}")
    return before, after


if __name__ == "__main__":
    main()
