"""All targets that can be reproduced, by name."""

from prism_marl.errors import UserError, nearest
from prism_marl.paper import budget_curves, common_ratio, masking, performance, regularisers, scaling, settings, spectra
from prism_marl.paper.target import Target

_FILES = (performance, budget_curves, scaling, regularisers, common_ratio, masking, spectra, settings)
TARGETS: dict[str, Target] = {target.name: target for file in _FILES for target in file.TARGETS}


def target_named(name: str) -> Target:
    """A target by its name."""
    if name not in TARGETS:
        raise UserError(f"reproduce: there is no target '{name}'; {nearest(name, TARGETS)}")
    return TARGETS[name]
