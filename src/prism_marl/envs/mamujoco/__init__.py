"""MaMuJoCo: one robot whose joints are split between several agents, with MuJoCo's physics."""

from prism_marl.envs.base import RowsEnv
from prism_marl.envs.mamujoco.tasks import ROBOTS, find_task, mamujoco_spec

__all__ = ["ROBOTS", "make_mamujoco", "mamujoco_spec"]


def make_mamujoco(variant: str, number: int, threads: int | None = None) -> RowsEnv:
    """Build ``number`` rows of a task. The physics engine is imported only here."""
    task = find_task(variant)
    from prism_marl.envs.mamujoco.robots import Robots

    return Robots(task, number, threads)
