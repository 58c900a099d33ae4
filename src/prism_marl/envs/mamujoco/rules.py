"""Observation, reward and termination of each robot: gym's v2 rules, for all rows at once in numpy.

Axes: ``n`` rows, ``q`` positions, ``v`` velocities. The first two or three positions are those of the whole robot.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Healthy = Callable[[np.ndarray, np.ndarray], np.ndarray]  # positions [n, q], velocities [n, v] -> still standing [n]


@dataclass(frozen=True)
class Rules:
    """One robot."""

    frames: int  # steps of the engine for each step of the task, with the same action
    effort: float  # cost of the squared actions
    hidden: int = 1  # so many positions, the first ones, are not observed, so that the distance moved is unknown
    alive: float = 0.0  # reward of every step
    noise: float = 0.1  # size of the noise on positions and velocities at the start
    normal: bool = False  # the noise on velocities is normal instead of uniform
    calm: float = np.inf  # with more velocities than this, their noise is smaller, see ``start``
    fastest: float = np.inf  # observed velocities are clipped here
    contacts: int = 0  # zeros at the end of the observation
    body: str = ""  # the reward depends on this body instead of the first position
    healthy: Healthy | None = None  # None: never terminates

    def observe(self, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """Positions, velocities, and zeros for the original's contact forces, which its engine never computed."""
        shown = position.shape[1] - self.hidden
        length = shown + velocity.shape[1]
        out = np.zeros((len(position), length + self.contacts), np.float32)
        out[:, :shown] = position[:, self.hidden :]
        out[:, shown:length] = velocity
        if self.fastest < np.inf:
            speed = out[:, shown:length]
            np.clip(speed, -self.fastest, self.fastest, out=speed)
        return out

    def start(self, seed: int, position: np.ndarray, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions and velocities of a new episode, the same as gymnasium's for the same seed.

        Turning speeds add up along a chain, so the speed at its end grows with about the 1.5th power of its length.
        With the full noise, drag makes the first step diverge for some seeds at 128 joints and for all at 256.
        """
        rng, size = np.random.default_rng(seed), self.noise
        placed = position + rng.uniform(-size, size, position.shape)
        if self.normal:
            return placed, velocity + size * rng.standard_normal(velocity.shape)
        gentle = min(1.0, (self.calm / len(velocity)) ** 1.5)
        return placed, velocity + gentle * rng.uniform(-size, size, velocity.shape)

    def reward(self, speed: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Forward speed, plus a bonus for every step, minus the cost of the squared actions."""
        return speed + self.alive - self.effort * np.einsum("nu,nu->n", action, action)


def _ant(position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    height = position[:, 2]
    finite = np.isfinite(position).all(axis=1) & np.isfinite(velocity).all(axis=1)
    return finite & (height >= 0.2) & (height <= 1.0)


def _hopper(position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    small = (np.abs(position[:, 2:]) < 100).all(axis=1) & (np.abs(velocity) < 100).all(axis=1)
    return small & (position[:, 1] > 0.7) & (position[:, 1] < np.inf) & (np.abs(position[:, 2]) < 0.2)


def _walker(position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    del velocity
    return (position[:, 1] > 0.8) & (position[:, 1] < 2.0) & (np.abs(position[:, 2]) < 1.0)


RULES = {
    "ant": Rules(5, 0.5, hidden=2, alive=1.0, normal=True, contacts=84, body="torso", healthy=_ant),
    "halfcheetah": Rules(5, 0.1, normal=True),
    "hopper": Rules(4, 1e-3, alive=1.0, noise=5e-3, fastest=10.0, healthy=_hopper),
    "walker2d": Rules(4, 1e-3, alive=1.0, noise=5e-3, fastest=10.0, healthy=_walker),
    "swimmer": Rules(4, 1e-4, hidden=2, calm=67.0),
}
