"""Learners. ``LEARNERS`` maps the algorithm name in a config to its settings class; ``register`` adds one."""

from typing import Any, TypeVar, get_args

from prism_marl.errors import UserError, nearest
from prism_marl.learners.base import Learner, Settings
from prism_marl.learners.iql import IQL
from prism_marl.learners.mappo import IPPO, MAPPO
from prism_marl.learners.matd3 import MATD3, MATD3Learner
from prism_marl.learners.qmix import QMix, QMixLearner
from prism_marl.learners.vdn import VDN
from prism_marl.registration import refuse_taken_name, settings_name
from prism_marl.types import ActionKind

LEARNERS: dict[str, type[Settings]] = {
    "qmix": QMix,
    "vdn": VDN,
    "iql": IQL,
    "matd3": MATD3,
    "mappo": MAPPO,
    "ippo": IPPO,
}


SettingsClass = TypeVar("SettingsClass", bound=type[Any])


def register(cls: SettingsClass) -> SettingsClass:
    """Add a learner of your own by its settings class, also as a decorator: from now on configs, presets and the
    command line know it by the name in its field ``algorithm``."""
    name = settings_name(cls, "learner", "algorithm")
    for needed in ("learner", "validate"):
        if not callable(getattr(cls, needed, None)):
            raise UserError(f"{cls.__name__}: {needed} is not defined; see prism_marl.learners.base.Settings")
    kinds, rule = getattr(cls, "kinds", ()), getattr(cls, "eval_rule", None)
    if not kinds or not isinstance(kinds, tuple) or not set(kinds) <= set(get_args(ActionKind)):
        raise UserError(f'{cls.__name__}.kinds: {kinds!r} does not say which actions it learns; write ("discrete",)')
    if rule not in ("exact", "first"):
        raise UserError(f"{cls.__name__}.eval_rule: {rule!r} is not a rule of evaluation; write 'exact' or 'first'")
    refuse_taken_name("learner", name, LEARNERS.get(name), cls)
    LEARNERS[name] = cls
    return cls


def learner(name: str) -> type[Settings]:
    """The settings class of a learner."""
    known = name.lower().replace("-", "_")
    if known not in LEARNERS:
        raise UserError(f"learner: there is no learner '{name}'; {nearest(known, LEARNERS)}")
    return LEARNERS[known]


__all__ = [
    "IPPO",
    "IQL",
    "LEARNERS",
    "MAPPO",
    "MATD3",
    "VDN",
    "Learner",
    "MATD3Learner",
    "QMix",
    "QMixLearner",
    "Settings",
    "learner",
    "register",
]
