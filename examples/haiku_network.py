"""Prism in a Haiku network, trained by optax: every array of a layer is a parameter of its module.

The game is that of examples/torch_network.py: all agents see the same signal, agent i must answer (signal + i) modulo
four, and the team is told only how many answers were right. Agents can differ only by their masks.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from prism_marl.sharing import Prism, RoleLinear, network_regularisers

AGENTS, WIDTH, BATCH = 4, 32, 64


class PrismLinear(hk.Module):
    """A layer of Prism: x [..., agent, in] to [..., agent, features]."""

    def __init__(self, sharing: Prism, features: int, identities: int, depth: int = 0, name: str | None = None):
        super().__init__(name)
        self.sharing, self.features, self.identities, self.depth = sharing, features, identities, depth

    def layer(self, fan_in: int) -> RoleLinear:
        """The layer with the parameters of this module."""

        def build(key):
            return self.sharing.linear(
                fan_in, self.features, identities=self.identities, key=key, kind="hidden", depth=self.depth
            )

        # Haiku asks for one array at a time: at the start those of a new layer, later only their shapes are needed.
        layer = build(hk.next_rng_key()) if hk.running_init() else jax.eval_shape(build, jax.random.key(0))
        leaves, structure = jax.tree_util.tree_flatten_with_path(layer)
        arrays = [
            hk.get_parameter(
                jax.tree_util.keystr(path, simple=True, separator="_"),
                leaf.shape,
                leaf.dtype,
                init=lambda *_, x=leaf: x,
            )
            for path, leaf in leaves
        ]
        return structure.unflatten(arrays)

    def __call__(self, x, identity=None):
        return self.layer(x.shape[-1])(x, identity)


def forward(x, sharing: Prism):
    """The value of every answer [batch, agent, answer], from observations [batch, agent, feature], and the terms."""
    x = jax.nn.relu(hk.Linear(WIDTH)(x))
    hidden, values = PrismLinear(sharing, WIDTH, AGENTS, depth=0), PrismLinear(sharing, AGENTS, AGENTS, depth=1)
    terms = network_regularisers([hidden.layer(WIDTH), values.layer(WIDTH)])
    return values(jax.nn.relu(hidden(x))), terms


def observe(signal):
    """All agents see the same signal."""
    return jnp.repeat(jax.nn.one_hot(signal, AGENTS)[:, None], AGENTS, axis=1)


def right(signal, answer):
    """The share of agents that answer rightly."""
    return jnp.mean(answer == (signal[:, None] + jnp.arange(AGENTS)) % AGENTS, axis=1)


def main(steps: int = 1_000, seed: int = 0) -> tuple[float, float]:
    """Train; print the return at the start, at the end, and the best that one function for all can reach."""
    sharing = Prism(threshold_shift=0.0)  # masks that differ from the start: a short game has no time to find them
    network = hk.without_apply_rng(hk.transform(lambda x: forward(x, sharing)))
    optimiser, signals = optax.adam(3e-3), jnp.arange(AGENTS)

    def loss(params, key):
        key_signal, key_answer = jax.random.split(key)
        signal = jax.random.randint(key_signal, (BATCH,), 0, AGENTS)
        answer = jax.random.randint(key_answer, (BATCH, AGENTS), 0, AGENTS)
        values, terms = network.apply(params, observe(signal))
        value = jnp.take_along_axis(values, answer[..., None], axis=2)[..., 0].mean(axis=1)  # of the team, as in VDN
        return jnp.mean((value - right(signal, answer)) ** 2) + sharing.ortho * terms["orthogonality"]

    @jax.jit
    def train(params, keys):
        def step(carry, key):
            params, state = carry
            updates, state = optimiser.update(jax.grad(loss)(params, key), state)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimiser.init(params)), keys)[0][0]

    def score(params) -> float:
        return float(right(signals, network.apply(params, observe(signals))[0].argmax(axis=-1)).mean())

    params = network.init(jax.random.key(seed), observe(signals))
    before, after = score(params), score(train(params, jax.random.split(jax.random.key(seed + 1), steps)))
    print(f"return before {before:.2f}, after {after:.2f}; one function for all cannot get above {1 / AGENTS:.2f}")
    return before, after


if __name__ == "__main__":
    main()
