"""What learners of action values carry: from update to update, and an agent from step to step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int, Key

from prism_marl.learners.regularisation import Balance
from prism_marl.learners.rewards import RewardScale
from prism_marl.networks.recurrent import RecurrentAgent

Mixer = Callable[[Array, Array], Array]  # the agents' values [*b a] and the state [*b s] to one value [*b]


class Networks(eqx.Module):
    """What the optimiser trains: one gradient norm, one Adam."""

    agent: RecurrentAgent
    mixer: Mixer | None


class ValueState(eqx.Module):
    """All that learning carries from one update to the next."""

    online: Networks
    target: Networks
    optimiser: Any
    balance: Balance
    scale: RewardScale
    updates: Int[Array, ""]
    key: Key[Array, ""]


class Memory(NamedTuple):
    """What an agent carries from step to step."""

    hidden: Float[Array, "*b a h"]
    last_action: Int[Array, "*b a"]  # -1 before the first
