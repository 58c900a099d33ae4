"""VDN: the team's value is the sum of the agents' values."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax.numpy as jnp

from prism_marl.learners.value import ValueLearner
from prism_marl.learners.value_settings import ValueSettings
from prism_marl.sharing.base import Sharing
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class VDN(ValueSettings):
    """As QMIX, but the team's value is the sum of the agents' values."""

    label: ClassVar[str] = "VDN"

    algorithm: Literal["vdn"] = "vdn"

    def learner(self, sharing: Sharing, spec: EnvSpec, *, width: int, rows: int = 1, steps: int = 0) -> "VDNLearner":
        """The learner that these settings stand for."""
        del steps
        return VDNLearner(self, sharing, spec, width, rows)


@dataclass(frozen=True)
class VDNLearner(ValueLearner):
    """VDN for one task and one sharing method."""

    def mixer(self, key):
        """Nothing to learn."""
        return

    def mix(self, networks, values, state):
        return jnp.sum(values, axis=-1)
