"""A small game in three places: in JAX, as one environment in Python, and as rows in numpy.

Two agents push a point along a line. It must stay near 0 and not leave [-1, 1]; an episode has at most five steps.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.envs.registry import Family
from prism_marl.types import EnvSpec, Observation, Step

AGENTS, HORIZON, START = 2, 5, 0.8


def spec(place: str, kind: Any) -> EnvSpec:
    """Sizes of ``line_<place>/<kind>``."""
    return EnvSpec(
        f"line_{place}/{kind}",
        AGENTS,
        observation=3,
        state=3,
        actions=3 if kind == "discrete" else 2,
        roles=AGENTS,
        horizon=HORIZON,
        kind=kind,
        metrics=("edge",),
    )


def after(x: Any, action: Any, kind: str) -> Any:
    """Where the point [*b] goes; actions are [*b, a], or [*b, a, u] where only the first number counts."""
    push = action - 1.0 if kind == "discrete" else action[..., 0]
    return (x + 0.5 * push.mean(axis=-1)).astype(np.float32)


def seen(x: Any, clock: Any, actions: int, np: Any = np) -> Observation:
    """What the team sees at points [*b]. The first agent may not take the last action far to the right."""
    now = clock.astype(np.float32) / HORIZON
    local = np.stack([np.stack([x, now, np.full_like(x, sign)], axis=-1) for sign in (1.0, -1.0)], axis=-2)
    barred = (x > 0.5)[..., None, None] & (np.arange(AGENTS) == 0)[:, None] & (np.arange(actions) == 2)
    role = np.broadcast_to(np.arange(AGENTS), (*x.shape, AGENTS))
    return Observation(local, np.stack([x, now, np.ones_like(x)], axis=-1), ~barred, role)


def stepped(x: Any, clock: Any, place: str, kind: str, np: Any = np) -> Step:
    """The step that led to points x at these times."""
    lost = abs(x) > 1
    late = (clock >= HORIZON) & ~lost
    return Step(seen(x, clock, spec(place, kind).actions, np), 1 - x**2, lost, late, {"edge": abs(x)})


class Point(NamedTuple):
    x: jax.Array
    clock: jax.Array


@dataclass(frozen=True)
class LineJax:
    """Pure functions."""

    kind: str

    @property
    def spec(self) -> EnvSpec:
        return spec("jax", self.kind)

    def reset(self, key):
        state = Point(jax.random.uniform(key, minval=-START, maxval=START), jnp.int32(0))
        return state, seen(*state, self.spec.actions, jnp)

    def step(self, key, state, action):
        state = Point(after(state.x, action, self.kind), state.clock + 1)
        return state, stepped(*state, "jax", self.kind, jnp)


class LineRows:
    """Rows side by side."""

    def __init__(self, kind: str, number: int, place: str = "rows"):
        self.kind, self.number, self.place, self.spec = kind, number, place, spec(place, kind)
        self.x, self.clock = np.zeros(number, np.float32), np.zeros(number, np.int32)

    def reset(self, rows, seeds) -> None:
        self.x[rows] = [np.random.default_rng(int(seed)).uniform(-START, START) for seed in seeds]
        self.clock[rows] = 0

    def observe(self) -> Observation:
        return seen(self.x.copy(), self.clock, self.spec.actions)

    def step(self, action: np.ndarray) -> Step:
        self.x, self.clock = after(self.x, action, self.kind), self.clock + 1
        return stepped(self.x.copy(), self.clock, self.place, self.kind)

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"x": self.x.copy(), "clock": self.clock.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        self.x, self.clock = snapshot["x"].copy(), snapshot["clock"].copy()

    def scene(self, row: int) -> None:
        return None

    def close(self) -> None:
        pass


class LineGame:
    """One episode at a time."""

    def __init__(self, kind: str):
        self.rows = LineRows(kind, 1, "python")
        self.spec = self.rows.spec

    def reset(self, seed: int) -> Observation:
        self.rows.reset([0], [seed])
        return jax.tree.map(lambda part: part[0], self.rows.observe())

    def step(self, action: np.ndarray) -> Step:
        return jax.tree.map(lambda part: part[0], self.rows.step(action[None]))

    def scene(self) -> None:
        return None

    def close(self) -> None:
        pass


FAMILIES = {
    "line_jax": Family("line_jax/<kind>", (), "for tests", make=LineJax),
    "line_python": Family("line_python/<kind>", (), "for tests", python=LineGame),
    "line_rows": Family(
        "line_rows/<kind>",
        (),
        "for tests",
        shape=lambda kind: spec("rows", kind),
        rows=lambda kind, number, threads: LineRows(kind, number),
    ),
}
