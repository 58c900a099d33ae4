"""Sizes of a benchmark that is measured here but not yet played: enough to build networks and count them.

Source: SMACv2's own environment info for the 5v5 maps.
"""

from prism_marl.errors import UserError, nearest
from prism_marl.types import EnvSpec

_BATTLES = {"terran": (82, 120), "protoss": (92, 130), "zerg": (82, 120)}


def smacv2_shape(variant: str) -> EnvSpec:
    """``smacv2/terran_5_vs_5`` and the other two races."""
    known = {f"{race}_5_vs_5": race for race in _BATTLES}
    if variant not in known:
        raise UserError(f"task: there is no 'smacv2/{variant}'; {nearest(variant, known)}")
    observation, state = _BATTLES[known[variant]]
    return EnvSpec(f"smacv2/{variant}", 5, observation, state, 11, 3, 200, version="smacv2")
