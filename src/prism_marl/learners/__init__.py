"""Learners. ``LEARNERS`` maps the algorithm name in a config to its settings class."""

from prism_marl.learners.qmix import QMix, QMixLearner

LEARNERS: dict[str, type[QMix]] = {"qmix": QMix}

__all__ = ["LEARNERS", "QMix", "QMixLearner"]
