"""Sizes of the paper's benchmarks that are measured here but not yet played: enough to build networks and count them.

Sources: SMACv2's own environment info for the 5v5 maps; gym's v2 robots with their full observation (Ant keeps its 84
contact entries), split over the action vector as HARL does.
"""

import re

from prism_marl.errors import UserError, nearest
from prism_marl.types import EnvSpec

_BATTLES = {"terran": (82, 120), "protoss": (92, 130), "zerg": (82, 120)}
_ROBOTS = {  # task: (agents, actions of each, observation)
    "ant-4x2": (4, 2, 111),
    "halfcheetah-2x3": (2, 3, 17),
    "hopper-3x1": (3, 1, 11),
    "walker2d-2x3": (2, 3, 17),
    "walker2d-6x1": (6, 1, 17),
}


def smacv2_shape(variant: str) -> EnvSpec:
    """``smacv2/terran_5_vs_5`` and the other two races."""
    known = {f"{race}_5_vs_5": race for race in _BATTLES}
    if variant not in known:
        raise UserError(f"task: there is no 'smacv2/{variant}'; {nearest(variant, known)}")
    observation, state = _BATTLES[known[variant]]
    return EnvSpec(f"smacv2/{variant}", 5, observation, state, 11, 3, 200, version="smacv2")


def mamujoco_shape(variant: str) -> EnvSpec:
    """``mamujoco/ant-4x2`` ... and ``mamujoco/swimmer-<agents>x<joints>`` of any size up to 1024 agents."""
    swimmer = re.fullmatch(r"swimmer-(\d{1,4})x(\d{1,2})", variant)
    if swimmer:
        agents, joints = int(swimmer[1]), int(swimmer[2])
        if not (1 <= agents <= 1024 and joints >= 1):
            raise UserError(f"task: 'mamujoco/{variant}' needs 1 to 1024 agents with at least 1 joint each")
        observation = 2 * agents * joints + 4
        return EnvSpec(f"mamujoco/{variant}", agents, observation, observation, joints, agents, 1000, "continuous")
    if variant not in _ROBOTS:
        examples = [*_ROBOTS, "swimmer-10x2"]
        raise UserError(f"task: there is no 'mamujoco/{variant}'; {nearest(variant, examples)}")
    agents, actions, observation = _ROBOTS[variant]
    return EnvSpec(f"mamujoco/{variant}", agents, observation, observation, actions, agents, 1000, "continuous")
