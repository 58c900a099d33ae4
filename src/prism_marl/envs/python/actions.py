"""What an action of ours means to an environment with gymnasium's spaces: one of a list, or numbers in a box."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from prism_marl.errors import UserError
from prism_marl.types import ActionKind


@dataclass(frozen=True)
class Choices:
    """Every agent picks one of its actions, counted from 0."""

    spaces: tuple[Any, ...]
    kind: ActionKind = "discrete"

    @property
    def sizes(self) -> list[int]:
        return [int(space.n) for space in self.spaces]

    def passed_on(self, place: int, action: Any) -> int:
        return int(action) + int(self.spaces[place].start)


@dataclass(frozen=True)
class Controls:
    """Every agent gives a vector; -1 and 1 are the ends of its box, and numbers beyond its length are ignored."""

    spaces: tuple[Any, ...]
    kind: ActionKind = "continuous"

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(space.shape)) for space in self.spaces]

    def passed_on(self, place: int, action: Any) -> np.ndarray:
        space = self.spaces[place]
        share = (np.clip(action[: self.sizes[place]], -1.0, 1.0).astype(np.float64) + 1.0) / 2.0
        return (space.low + share.reshape(space.shape) * (space.high - space.low)).astype(space.dtype)


def read_actions(name: str, agents: list[Any], env: Any, spaces: Any) -> Choices | Controls:
    """All agents choose, or all agents control; ``spaces`` is gymnasium's module."""
    found = tuple(env.action_space(agent) for agent in agents)
    if all(isinstance(space, spaces.Discrete) for space in found):
        return Choices(found)
    for agent, space in zip(agents, found, strict=True):
        if not isinstance(space, spaces.Box):
            mixed = isinstance(space, spaces.Discrete)
            what = "a list of actions and others a box" if mixed else f"{type(space).__name__} actions"
            raise UserError(
                f"task: '{name}' gives agent '{agent}' {what}; wrap it so that all have Discrete or all a Box"
            )
        if not (np.issubdtype(space.dtype, np.floating) and space.is_bounded()):
            raise UserError(
                f"task: '{name}' gives agent '{agent}' a Box that is not of bounded real numbers; wrap the environment "
                "so that actions have a lowest and a highest value"
            )
    return Controls(found)
