"""Target networks after a sharing method has changed the agents between two updates."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from prism_marl.sharing.base import Sharing


def after_change(target: Any, before: Any, after: Any, sharing: Sharing) -> Any:
    """The target network has labels and masks of the agents at once. Weights follow as always; those that the method
    has changed are there at once where it says so."""

    def weight(held: Any, old: Any, new: Any) -> Any:
        return jnp.where(new != old, new, held) if eqx.is_inexact_array(held) else held

    if sharing.targets_at_once:
        target = jax.tree.map(weight, target, before, after)
    return eqx.combine(eqx.filter(target, eqx.is_inexact_array), after)
