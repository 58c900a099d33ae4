"""Describes every number of a robot's observation, in order; the tests compare this with the models."""

from dataclasses import dataclass

from prism_marl.envs.mamujoco.rules import RULES
from prism_marl.envs.mamujoco.tasks import Task

# Position and orientation of the robot: observed positions, then velocities. Ant's orientation is a quaternion.
_PITCH = ("pitch", "pitch of the torso, rad")
_PLANAR = (("x", "forward speed, m/s"), ("z", "upward speed, m/s"), ("pitch", "turning speed, rad/s"))
_ROOTS = {
    "ant": (
        (("z", "height, m"), *((f"turn.{axis}", f"{axis} of the torso's unit quaternion") for axis in "wxyz")),
        (
            *((axis, f"speed along the world's {axis}, m/s") for axis in "xyz"),
            *((f"turn.{axis}", f"turning speed about the torso's own {axis}, rad/s") for axis in "xyz"),
        ),
    ),
    "halfcheetah": ((("z", "height above the start, m"), _PITCH), _PLANAR),
    "hopper": ((("z", "height, m"), _PITCH), _PLANAR),
    "walker2d": ((("z", "height, m"), _PITCH), _PLANAR),
    "swimmer": (
        (("turn", "heading of the head, rad"),),
        (("x", "forward speed, m/s"), ("y", "sideways speed, m/s"), ("turn", "turning speed of the head, rad/s")),
    ),
}
JOINTS = {
    "ant": ("hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3", "hip_4", "ankle_4"),
    "halfcheetah": ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"),
    "hopper": ("thigh_joint", "leg_joint", "foot_joint"),
    "walker2d": ("thigh_joint", "leg_joint", "foot_joint", "thigh_left_joint", "leg_left_joint", "foot_left_joint"),
}
_FIRST_MOTOR = {"ant": 2}  # Ant's motors start with its fourth leg


@dataclass(frozen=True)
class Field:
    """One number of the observation."""

    index: int
    name: str
    meaning: str
    agent: int | None = None  # the agent that moves this joint


def joints(task: Task) -> tuple[str, ...]:
    """The moved joints, in the order of positions and velocities."""
    if task.robot == "swimmer":
        return tuple(f"joint{k}" for k in range(task.agents * task.joints))
    return JOINTS[task.robot]


def motors(task: Task) -> tuple[str, ...]:
    """The moved joints, in the order of the action vector."""
    names, shift = joints(task), _FIRST_MOTOR.get(task.robot, 0)
    return names[len(names) - shift :] + names[: len(names) - shift]


def fields(task: Task) -> tuple[Field, ...]:
    """The observation, which is the same for all agents."""
    owner = {name: motor // task.joints for motor, name in enumerate(motors(task))}
    positions, velocities = _ROOTS[task.robot]
    cut = RULES[task.robot].fastest
    limit = f", cut off at {cut:g}" if cut < float("inf") else ""
    rows = [(f"position.{name}", meaning, None) for name, meaning in positions]
    rows += [(f"position.{name}", f"angle of {name}, rad", owner[name]) for name in joints(task)]
    rows += [(f"velocity.{name}", meaning + limit, None) for name, meaning in velocities]
    rows += [(f"velocity.{name}", f"angular speed of {name}, rad/s{limit}", owner[name]) for name in joints(task)]
    rows += [(f"contact.{k}", "always 0", None) for k in range(RULES[task.robot].contacts)]
    return tuple(Field(index, *row) for index, row in enumerate(rows))
