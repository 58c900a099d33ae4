"""The tasks as plain numbers: agents, joints and sizes. Needs no physics engine, so `footprint` can use it.

The action vector of a robot is split into equal parts, in order, one for each agent, as in HARL. Every agent observes
the whole robot as in gym's v2 environments.
"""

import re
from dataclasses import dataclass

from prism_marl.errors import UserError, nearest
from prism_marl.types import EnvSpec

HORIZON = 1000
MOST_AGENTS = 1024
VERSION = "gym-v2"  # observations, rewards and contacts; swimmer: multiagent_mujoco's, time step 0.005


@dataclass(frozen=True)
class Task:
    """One robot, split into agents."""

    robot: str
    agents: int
    joints: int  # of each agent
    observation: int

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            name=f"mamujoco/{self.robot}-{self.agents}x{self.joints}",
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
    """``ant-4x2`` ... and ``swimmer-<agents>x<joints>`` of any size up to 1024 agents."""
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


def mamujoco_spec(variant: str) -> EnvSpec:
    """Sizes of a task."""
    return find_task(variant).spec
