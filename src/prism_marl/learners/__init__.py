"""Learners. ``LEARNERS`` maps the algorithm name in a config to its settings class."""

from prism_marl.errors import UserError, nearest
from prism_marl.learners.base import Learner, Settings
from prism_marl.learners.iql import IQL
from prism_marl.learners.matd3 import MATD3, MATD3Learner
from prism_marl.learners.qmix import QMix, QMixLearner
from prism_marl.learners.vdn import VDN

LEARNERS: dict[str, type[Settings]] = {"qmix": QMix, "vdn": VDN, "iql": IQL, "matd3": MATD3}


def learner(name: str) -> type[Settings]:
    """The settings class of a learner."""
    known = name.lower().replace("-", "_")
    if known not in LEARNERS:
        raise UserError(f"learner: there is no learner '{name}'; {nearest(known, LEARNERS)}")
    return LEARNERS[known]


__all__ = ["IQL", "LEARNERS", "MATD3", "VDN", "Learner", "MATD3Learner", "QMix", "QMixLearner", "Settings", "learner"]
