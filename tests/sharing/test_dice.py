"""On a task that needs roles the task decides whose mask keeps which direction, and not the initial thresholds.

Four identities share one layer and regress on matrices of which each leaves out directions of its own. Who needs which
is sampled apart from the thresholds, so an identity that keeps a direction another drops had the lower threshold half
the time. A method whose masks follow the thresholds' sample fails here, however far its masks have parted.
"""

from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from prism_marl.learners.regularisation import Balance, regularised
from prism_marl.runs.masks import explained_by_start
from prism_marl.sharing import Prism

SEEDS, IDENTITIES, SIZE, STEPS = 12, 4, 12, 1_500


class Outcome(NamedTuple):
    """After training, over all seeds."""

    pairs: int  # "on for one identity, off for another"
    by_start: float  # share of them in which the one that is on had the lower threshold at the start
    by_need: float  # share in which the one that is on needs the direction, where one of the two does


def trained(settings: Prism, key) -> tuple:
    """Values and masks before and after training, and who needs what."""
    key_layer, key_need = jax.random.split(key)
    layer: Any = settings.linear(SIZE, SIZE, identities=IDENTITIES, key=key_layer, kind="hidden", depth=0)
    needed = jax.random.permutation(
        key_need, jnp.arange(IDENTITIES)[:, None] < jnp.full(layer.masked, IDENTITIES // 2), axis=0, independent=True
    )
    full = jnp.concatenate([jnp.ones((IDENTITIES, SIZE - layer.masked)), needed], axis=1)
    goal = jnp.einsum("or,mr,ir->moi", layer.U, layer.s * full, layer.V)
    optimiser = optax.adam(3e-2)

    def loss(layer, balance):
        task = jnp.mean((layer.dense() - goal) ** 2)
        total, balance, _ = regularised(task, layer, settings.penalties(), balance)
        return total, balance

    def step(carry, _):
        layer, balance, state = carry
        (_, balance), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(layer, balance)
        updates, state = optimiser.update(gradient, state)
        return (eqx.apply_updates(layer, updates), balance, state), None

    start = (layer, Balance.empty(settings.window), optimiser.init(layer))
    (after, _, _), _ = jax.lax.scan(step, start, None, length=STEPS)
    return layer.spectrum(), after.spectrum(), needed


@cache
def outcome(**settings) -> Outcome:
    """Train ``SEEDS`` layers and ask what their masks follow."""
    prism = Prism(**settings)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    first, last, needed = jax.device_get(jax.jit(jax.vmap(lambda key: trained(prism, key)))(keys))
    values, masks = (np.stack(two) for two in zip(first, last, strict=True))
    common = SIZE - prism.masked(SIZE)
    found = explained_by_start(values, masks, common)
    on, off = (np.asarray(one) for one in (last[1][..., common:], ~last[1][..., common:]))

    def pairs(one, other) -> int:
        return int((one[:, :, None] & other[:, None]).sum())

    right, wrong = pairs(on & needed, off & ~needed), pairs(on & ~needed, off & needed)
    return Outcome(int(found.pairs.sum()), float(found.total().shares[0]), right / max(right + wrong, 1))


CHOICES = {
    "default": {},
    "one sample": {"threshold_init": "shared"},
    "both": {"threshold_init": "shared", "ties": "apart"},
}


@pytest.mark.parametrize("name", CHOICES)
def test_masks_follow_the_task_and_not_the_initial_thresholds(name):
    found = outcome(**CHOICES[name])
    assert found.pairs > 50
    assert found.by_need > 0.95
    assert found.by_start < 0.8
    if "threshold_init" in CHOICES[name]:
        assert found.by_start == 0.5, "all start alike: ties, which count one half"


def test_moving_apart_with_samples_of_their_own_is_what_the_test_above_would_refuse():
    """The default until November 2026: every final difference is the order of the initial thresholds."""
    found = outcome(ties="apart")
    assert found.pairs > 50
    assert found.by_start > 0.95
    assert found.by_need < 0.75
