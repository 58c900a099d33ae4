"""The hand-written backward pass of the unrolled GRU equals plain differentiation, for every method."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.networks.recurrent import recurrent_agent
from prism_marl.sharing import METHODS


def plain_unroll(agent, x, role):
    """One cell after the other, differentiated by JAX."""
    h, values = agent.initial(*x.shape[1:-1]), []
    for t in range(x.shape[0]):
        h, q = agent(h, x[t], role[t])
        values.append(q)
    return jnp.stack(values)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("masks", ["agent", "role"])
def test_values_and_gradients_equal_plain_differentiation(method, masks):
    sharing = METHODS[method]()
    if masks == "role":
        if not hasattr(sharing, "masks"):
            return
        sharing = sharing.changed(masks="role")
    key_net, key_x, key_role, key_weight = jax.random.split(jax.random.key(0), 4)
    agent = recurrent_agent(sharing, inputs=5, actions=3, width=8, agents=3, roles=2, key=key_net)
    x = jax.random.normal(key_x, (6, 2, 3, 5))
    role = jax.random.randint(key_role, (6, 2, 3), 0, 2)
    weight = jax.random.normal(key_weight, (6, 2, 3, 3))
    trained, fixed = eqx.partition(agent, eqx.is_inexact_array)

    def loss(unroll):
        return lambda trained, x: jnp.sum(weight * unroll(eqx.combine(trained, fixed), x, role) ** 2)

    fast = jax.jit(jax.value_and_grad(loss(lambda agent, x, role: agent.unroll(x, role)), argnums=(0, 1)))
    slow = jax.jit(jax.value_and_grad(loss(plain_unroll), argnums=(0, 1)))
    for ours, theirs in zip(jax.tree.leaves(fast(trained, x)), jax.tree.leaves(slow(trained, x)), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
