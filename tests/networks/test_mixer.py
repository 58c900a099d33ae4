"""The mixer equals the public implementation and never decreases when an agent's value grows."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.networks.mixer import Affine, mixer

REFERENCE = Path(__file__).parents[1] / "data" / "mixer_and_targets_reference.npz"


def test_mixer_equals_the_reference_implementation():
    data = np.load(REFERENCE)
    weight = {name.removeprefix("mixer_weight:"): data[name] for name in data.files if name.startswith("mixer_weight")}

    def stacked(kind):
        parts = ("hyper_w1.0", "hyper_w2.0", "hyper_b1.0", "hyper_b2.0")
        return jnp.concatenate([jnp.asarray(weight[f"{part}.{kind}"]) for part in parts])

    def affine(part):
        return Affine(jnp.asarray(weight[f"{part}.weight"]), jnp.asarray(weight[f"{part}.bias"]))

    fresh = mixer(agents=5, state=120, embed=32, hypernet=64, key=jax.random.key(0))
    ours = eqx.tree_at(
        lambda m: (m.from_state, m.first_weight, m.second_weight, m.second_bias),
        fresh,
        (Affine(stacked("weight"), stacked("bias")), affine("hyper_w1.2"), affine("hyper_w2.2"), affine("hyper_b2.2")),
    )
    assert np.allclose(
        ours(jnp.asarray(data["mixer_q"]), jnp.asarray(data["mixer_state"])), data["mixer_out"], atol=1e-4
    )


def test_mixer_is_monotone_in_every_agent():
    key_mixer, key_values, key_state = jax.random.split(jax.random.key(1), 3)
    mix = mixer(agents=4, state=9, embed=8, hypernet=16, key=key_mixer)
    values, state = 5 * jax.random.normal(key_values, (200, 4)), 5 * jax.random.normal(key_state, (200, 9))
    slope = jax.vmap(jax.grad(mix))(values, state)
    assert slope.min() >= 0
    assert slope.max() > 0
