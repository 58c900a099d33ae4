"""Converts our actions for environments with gymnasium's spaces: Discrete or Box."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from prism_marl.errors import UserError
from prism_marl.types import ActionKind


@dataclass(frozen=True)
class Choices:
    """Discrete actions: every agent chooses one, counted from 0."""

    spaces: tuple[Any, ...]
    kind: ActionKind = "discrete"

    @property
    def sizes(self) -> list[int]:
        return [int(space.n) for space in self.spaces]

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [int(space.start) for space in self.spaces]

    def convert(self, action: np.ndarray) -> list[Any]:
        """What the spaces call the choices of all agents."""
        return [int(choice) + start for choice, start in zip(action.tolist(), self._starts, strict=True)]


@dataclass(frozen=True)
class Controls:
    """Continuous actions: -1 and 1 are mapped to the bounds of the agent's Box; surplus numbers are ignored."""

    spaces: tuple[Any, ...]
    kind: ActionKind = "continuous"

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(space.shape)) for space in self.spaces]

    @functools.cached_property
    def _ranges(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(space.low, space.high - space.low) for space in self.spaces]

    def convert(self, action: np.ndarray) -> list[Any]:
        """Values of the agents' boxes."""
        shares = (np.clip(action, -1.0, 1.0).astype(np.float64) + 1.0) / 2.0
        return [
            (low + share[: low.size].reshape(low.shape) * span).astype(space.dtype)
            for share, space, (low, span) in zip(shares, self.spaces, self._ranges, strict=True)
        ]


def read_actions(name: str, agents: list[Any], env: Any, spaces: Any) -> Choices | Controls:
    """The actions of all agents, which must be all discrete or all continuous; ``spaces`` is gymnasium's module."""
    found = tuple(env.action_space(agent) for agent in agents)
    if all(isinstance(space, spaces.Discrete) for space in found):
        return Choices(found)
    for agent, space in zip(agents, found, strict=True):
        if not isinstance(space, spaces.Box):
            mixed = isinstance(space, spaces.Discrete)
            what = "Discrete actions and others a Box" if mixed else f"{type(space).__name__} actions"
            raise UserError(
                f"task: '{name}' gives agent '{agent}' {what}; wrap it so that all have Discrete or all a Box"
            )
        if not (np.issubdtype(space.dtype, np.floating) and space.is_bounded()):
            raise UserError(
                f"task: '{name}' gives agent '{agent}' a Box that is not of bounded real numbers; wrap the environment "
                "so that actions have a lowest and a highest value"
            )
    return Controls(found)
