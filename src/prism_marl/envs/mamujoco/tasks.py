"""The tasks as plain numbers: agents, joints and sizes. Needs no physics engine, so `footprint` can use it.

The action vector of a robot is split into equal parts, in order, one for each agent, as in HARL. Every agent observes
the whole robot as in gym's v2 environments. In a damaged robot the motors of one agent have lost most of their torque.
"""

import dataclasses
import re
from dataclasses import dataclass

from prism_marl.errors import UserError, nearest
from prism_marl.types import EnvSpec

HORIZON = 1000
MOST_AGENTS = 1024
VERSION = "gym-v2"  # observations, rewards and contacts; swimmer: multiagent_mujoco's, time step 0.005
DAMAGED_TORQUE = 0.25  # of a damaged agent's motors, as a share of what they had


@dataclass(frozen=True)
class Task:
    """One robot, split into agents."""

    robot: str
    agents: int
    joints: int  # of each agent
    observation: int
    damaged: int | None = None  # the agent whose motors are weak

    @property
    def spec(self) -> EnvSpec:
        damage = "" if self.damaged is None else f"-damaged{self.damaged}"
        return EnvSpec(
            name=f"mamujoco/{self.robot}-{self.agents}x{self.joints}{damage}",
            agents=self.agents,
            observation=self.observation,
            state=self.observation,
            actions=self.joints,
            roles=self.agents,
            horizon=HORIZON,
            kind="continuous",
            version=VERSION,
            shared_observation=True,
        )


ROBOTS = {
    "ant-4x2": Task("ant", 4, 2, 111),
    "halfcheetah-2x3": Task("halfcheetah", 2, 3, 17),
    "hopper-3x1": Task("hopper", 3, 1, 11),
    "walker2d-2x3": Task("walker2d", 2, 3, 17),
    "walker2d-6x1": Task("walker2d", 6, 1, 17),
}


def find_task(variant: str) -> Task:
    """``ant-4x2`` ... and ``swimmer-<agents>x<joints>`` of any size up to 1024 agents; ``ant-4x2-damaged0`` ..."""
    whole, found, damaged = variant.partition("-damaged")
    if found:
        return _damaged(find_task(whole), damaged, variant)
    swimmer = re.fullmatch(r"swimmer-([0-9]{1,9})x([0-9]{1,9})", variant)
    if swimmer:
        agents, joints = int(swimmer[1]), int(swimmer[2])
        if not (1 <= agents <= MOST_AGENTS and 1 <= joints <= 99):
            raise UserError(
                f"task: 'mamujoco/{variant}' needs 1 to {MOST_AGENTS} agents with 1 to 99 joints each; try swimmer-10x2"
            )
        return Task("swimmer", agents, joints, 2 * agents * joints + 4)
    if variant not in ROBOTS:
        raise UserError(f"task: there is no 'mamujoco/{variant}'; {nearest(variant, [*ROBOTS, 'swimmer-10x2'])}")
    return ROBOTS[variant]


def _damaged(task: Task, agent: str, variant: str) -> Task:
    """The task with one weak agent."""
    if not re.fullmatch("0|[1-9][0-9]{0,3}", agent) or int(agent) >= task.agents:
        raise UserError(
            f"task: 'mamujoco/{variant}' must name the damaged agent, 0 to {task.agents - 1}; "
            f"try {task.spec.name}-damaged0"
        )
    return dataclasses.replace(task, damaged=int(agent))


def mamujoco_spec(variant: str) -> EnvSpec:
    """Sizes of a task."""
    return find_task(variant).spec
