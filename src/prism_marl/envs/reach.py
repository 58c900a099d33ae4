"""The diagnostic task ``reach/<agents>``: ``roles`` for continuous actions, over several steps.

All agents observe the same drift d, and the target of agent i is the point (c_i + 0.2 d, -c_i + 0.2 d), where the c_i
are spread evenly over [-0.8, 0.8]. The reward of a step is 1 minus the mean squared distance over agents and
coordinates. The mean distance with its sign moves the drift, and a drift outside [-1, 1] terminates the episode.

The best reward of a sharing method is known: 1 if every agent can differ, 1 - var(c) if all act alike, because the best
common action is the mean of the targets. In both cases the drift then stays constant.
"""

from typing import Any, NamedTuple

import numpy as np

from prism_marl.envs.settings import read_agents
from prism_marl.scene import Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step

FEWEST, MOST = 2, 1024
HORIZON = 10
LEAN = 0.2  # how much the targets move with the drift
PUSH = 0.5  # how much the drift moves with the mean distance
START = 0.8  # the drift starts in [-START, START]
SIDE = 24.0  # units of the picture
LEGEND = "disc: what an agent plays; circle of its colour: what it should"


def points(agents: int) -> np.ndarray:
    """c_i, the first coordinate of each agent's target at drift 0."""
    return np.linspace(-0.8, 0.8, agents, dtype=np.float32)


class Outcome(NamedTuple):
    """What a step of the game brings, in numpy or in JAX."""

    drift: Any  # after the step
    reward: Any
    lost: Any  # the drift has left [-1, 1]


def outcome(drift: Any, action: Any, points: Any) -> Outcome:
    """The rules: ``drift`` [*b], actions and points [*b, a, 2]; ``points`` are those at drift 0."""
    miss = action - aims(drift, points)
    reward = 1 - (miss**2).mean(axis=(-2, -1))
    drift = (drift + PUSH * miss.mean(axis=(-2, -1))).astype(np.float32)
    return Outcome(drift, reward.astype(np.float32), abs(drift) > 1)


def aims(drift: Any, points: Any) -> Any:
    """Where the agents' points are now."""
    return points + LEAN * drift[..., None, None]


def drawing(agents: int, clock: int, drift: float, aim: np.ndarray, played: np.ndarray | None) -> Scene:
    """The plane of actions: a circle at each agent's point, and a disc where it played in the step just made."""
    size = max(0.15, min(1.2, 12 / agents))
    circles = [Shape("circle", x, y, 1.6 * size, agent, glyph="o") for agent, (x, y) in enumerate(_in_picture(aim))]
    discs = [
        Shape("disc", x, y, size, agent, glyph=chr(ord("A") + agent % 26))
        for agent, (x, y) in enumerate(_in_picture(played) if played is not None else [])
    ]
    caption = f"step {clock}/{HORIZON}, drift {drift:.2f}"
    numbers = {"step": float(clock), "drift": drift}
    return Scene(SIDE, SIDE, (*circles, *discs), grid=False, caption=caption, extra=numbers, legend=LEGEND)


def _in_picture(points: np.ndarray) -> list[list[float]]:
    """Points of [-1, 1] in the picture, which leaves a margin; the second coordinate points up."""
    return (SIDE / 2 + SIDE / 2.4 * points * [1, -1]).tolist()


class Reach:
    """Rows of the task in plain numpy."""

    def __init__(self, agents: int, number: int):
        self.spec, self.number = reach_spec(str(agents)), number
        self.points = np.stack([points(agents), -points(agents)], axis=-1)
        self.drift, self.clock = np.zeros(number, np.float32), np.zeros(number, np.int32)
        # of the last step; used by drawings only, so not part of a snapshot
        self._aim = self._played = np.zeros((number, agents, 2), np.float32)

    def reset(self, rows: np.ndarray, seeds: np.ndarray) -> None:
        """Start these rows; the seed decides the first drift."""
        for row, seed in zip(rows, seeds, strict=True):
            self.drift[row] = np.random.default_rng(int(seed)).uniform(-START, START)
        self.clock[rows] = 0

    def observe(self) -> Observation:
        """The drift and the constants 1 and -1, without which standardised inputs would lose the size of the drift."""
        agents, actions = self.spec.agents, self.spec.actions
        state = np.stack([self.drift, np.ones_like(self.drift), -np.ones_like(self.drift)], axis=-1)
        local = np.broadcast_to(state[:, None], (self.number, agents, self.spec.observation))
        role = np.broadcast_to(np.arange(agents), (self.number, agents))
        parts: tuple[Any, ...] = (local, state, np.ones((self.number, agents, actions), bool), role)
        return Observation(*parts)

    def step(self, action: np.ndarray) -> Step:
        """Reward, then the drift moves."""
        self._aim, self._played = aims(self.drift, self.points), np.array(action)
        after = outcome(self.drift, action, self.points)
        self.drift, self.clock = after.drift, self.clock + 1
        truncated = (self.clock >= HORIZON) & ~after.lost
        parts: tuple[Any, ...] = (after.reward, after.lost, truncated, {})
        return Step(self.observe(), *parts)

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"drift": self.drift.copy(), "clock": self.clock.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        self.drift, self.clock = snapshot["drift"].copy(), snapshot["clock"].copy()

    def scene(self, row: int) -> Scene:
        """Nothing is played before the first step."""
        begun = bool(self.clock[row])
        aim = self._aim[row] if begun else aims(self.drift[row], self.points)
        played = self._played[row] if begun else None
        return drawing(self.spec.agents, int(self.clock[row]), float(self.drift[row]), aim, played)

    def close(self) -> None:
        """There is nothing to close."""


def reach_spec(variant: str, family: str = "reach") -> EnvSpec:
    """Sizes of ``reach/<variant>``, where the variant is the number of agents."""
    agents = read_agents(family, variant, FEWEST, MOST, f"{family}/3")
    return EnvSpec(
        f"{family}/{agents}",
        agents,
        observation=3,
        state=3,
        actions=2,
        roles=agents,
        horizon=HORIZON,
        kind="continuous",
        shared_observation=True,
    )


def make_reach(variant: str, number: int, threads: int | None = None) -> Reach:
    """Build rows of ``reach/<variant>``; one thread is always enough."""
    del threads
    return Reach(reach_spec(variant).agents, number)
