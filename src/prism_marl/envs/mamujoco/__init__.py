"""MaMuJoCo: one robot whose joints belong to several agents, with MuJoCo's own physics."""

from prism_marl.envs.base import RowsEnv
from prism_marl.envs.mamujoco.tasks import ROBOTS, find_task, mamujoco_spec

__all__ = ["ROBOTS", "make_mamujoco", "mamujoco_spec"]


def make_mamujoco(variant: str, number: int, threads: int | None = None) -> RowsEnv:
    """Build ``number`` rows of a task; only here is the physics engine imported."""
    task = find_task(variant)
    from prism_marl.envs.mamujoco.robots import Robots

    return Robots(task, number, threads)
