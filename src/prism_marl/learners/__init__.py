"""Learners. ``LEARNERS`` maps the algorithm name in a config to its settings class."""

from prism_marl.learners.matd3 import MATD3, MATD3Learner
from prism_marl.learners.qmix import QMix, QMixLearner

LEARNERS: dict[str, type[QMix] | type[MATD3]] = {"qmix": QMix, "matd3": MATD3}

__all__ = ["LEARNERS", "MATD3", "MATD3Learner", "QMix", "QMixLearner"]
