"""QMIX: the agents' values are mixed by a network that is monotone in each of them and reads the state."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from jaxtyping import Array, Key

from prism_marl.learners.value import ValueLearner
from prism_marl.learners.value_settings import ValueSettings
from prism_marl.learners.value_state import Mixer
from prism_marl.networks.mixer import mixer
from prism_marl.sharing.base import Sharing
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class QMix(ValueSettings):
    """Recurrent agents, a monotonic mixing network that reads the state, a replay buffer of episodes."""

    label: ClassVar[str] = "QMIX"
    positive: ClassVar[tuple[str, ...]] = (*ValueSettings.positive, "embed", "hypernet")

    algorithm: Literal["qmix"] = "qmix"
    embed: int = field(default=32, metadata={"after": "epsilon_anneal"})  # width of the mixing network
    hypernet: int = field(default=64, metadata={"after": "embed"})  # hidden units of the mixer's hypernetworks

    def learner(self, sharing: Sharing, spec: EnvSpec, *, width: int, rows: int = 1, steps: int = 0) -> "QMixLearner":
        """The learner that these settings stand for."""
        del steps
        return QMixLearner(self, sharing, spec, width, rows)


@dataclass(frozen=True)
class QMixLearner(ValueLearner):
    """QMIX for one task and one sharing method."""

    def mixer(self, key: Key[Array, ""]) -> Mixer:
        s, spec = self.settings, self.spec
        return mixer(agents=spec.agents, state=spec.state, embed=s.embed, hypernet=s.hypernet, key=key)
