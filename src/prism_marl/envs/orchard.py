"""The game ``orchard/<rows>x<cols>-<pickers>p-<fruits>f``: every agent can pick fruit of its own kind only.

All agents observe alike: where fruit of each kind lies from where they stand. Nothing says who one is, and an agent
that steps on fruit of another kind spoils it. A team of one policy without ids therefore picks one fruit in n on
average at best: only one agent can enter a fruit's cell, it is the right one in one case of n, and nobody observes
which it was. With ``-any`` everybody can pick everything, so that agents need not differ.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from prism_marl.envs.board import ACTIONS, DOWN, RIGHT, agent_discs, check_limits, kind_fields, nearest_of_each_kind
from prism_marl.errors import UserError
from prism_marl.scene import NOBODY, Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step

LARGEST = 64  # rows and columns
THERE, PICKED, SPOILED = range(3)


class State(NamedTuple):
    """Agents by index; fruit by kind, that of agent 0 first."""

    row: Int[Array, " a"]
    col: Int[Array, " a"]
    fruit_row: Int[Array, " f"]
    fruit_col: Int[Array, " f"]
    fruit: Int[Array, " f"]  # there, picked or spoiled
    picking: Bool[Array, " a"]  # who picked fruit in the last step; used by drawings only
    clock: Int[Array, ""]


@dataclass(frozen=True)
class Orchard:
    """One task."""

    rows: int
    cols: int
    pickers: int
    fruits: int  # of each kind; there are as many kinds as agents
    anyone: bool = False  # everybody can pick everything

    @property
    def spec(self) -> EnvSpec:
        n, size = self.pickers, 3 * self.pickers * self.fruits
        return EnvSpec(
            name=f"orchard/{self.rows}x{self.cols}-{n}p-{self.fruits}f" + ("-any" if self.anyone else ""),
            agents=n,
            observation=size,
            state=n * size,
            actions=len(ACTIONS),
            roles=n,
            horizon=self.horizon,
            metrics=("spoiled",),
            storage="int8",
            magnitude=float(max(self.rows, self.cols)),
            state_is_joint=True,
        )

    @property
    def horizon(self) -> int:
        """Time enough to cross the orchard for each fruit."""
        return self.fruits * (self.rows + self.cols)

    @property
    def kind(self) -> Int[np.ndarray, " f"]:
        """Whose fruit each is."""
        return np.repeat(np.arange(self.pickers), self.fruits)

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        """Agents and fruit on random cells, all different."""
        cells = jax.random.permutation(key, self.rows * self.cols)[: self.pickers * (1 + self.fruits)]
        (row, fruit_row), (col, fruit_col) = (
            jnp.split(part, [self.pickers]) for part in (cells // self.cols, cells % self.cols)
        )
        none = jnp.zeros(self.pickers, bool)
        state = State(row, col, fruit_row, fruit_col, jnp.zeros(self.kind.size, jnp.int32), none, jnp.int32(0))
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        """All move at once and may share a cell; but where several want to enter the cell of one fruit, all stay."""
        del key  # only ``reset`` is random
        row = jnp.clip(state.row + jnp.asarray(DOWN)[action], 0, self.rows - 1)
        col = jnp.clip(state.col + jnp.asarray(RIGHT)[action], 0, self.cols - 1)
        there = state.fruit == THERE
        enters = (row[:, None] == state.fruit_row) & (col[:, None] == state.fruit_col) & there  # [a, f]
        enters &= jnp.sum(enters, axis=0) == 1
        crowded = ((row[:, None] == state.fruit_row) & (col[:, None] == state.fruit_col) & there & ~enters).any(axis=1)
        row, col = jnp.where(crowded, state.row, row), jnp.where(crowded, state.col, col)
        picks = enters & (self.anyone | (jnp.arange(self.pickers)[:, None] == self.kind))
        picked = picks.any(axis=0)
        fruit = jnp.where(picked, PICKED, jnp.where(enters.any(axis=0), SPOILED, state.fruit))
        clock = state.clock + 1
        over = jnp.all(fruit != THERE)
        state = State(row, col, state.fruit_row, state.fruit_col, fruit, picks.any(axis=1), clock)
        return state, Step(
            self._observe(state),
            reward=jnp.sum(picked) / jnp.float32(self.kind.size),
            terminated=over,
            truncated=(clock >= self.horizon) & ~over,
            metrics={"spoiled": jnp.mean(fruit == SPOILED, dtype=jnp.float32)},
        )

    def fields(self) -> tuple[tuple[str, str], ...]:
        """The name and meaning of every number of an observation."""
        return tuple(kind_fields(self.pickers, self.fruits, "fruit"))

    def scene(self, state: State) -> Scene:
        """Discs for agents, squares of their colour for their fruit, crosses for spoiled fruit; a ring: it picks."""
        s = State(*(x.tolist() for x in jax.device_get(state)))
        shapes: list[Shape] = []
        for kind, row, col, fruit in zip(self.kind.tolist(), s.fruit_row, s.fruit_col, s.fruit, strict=True):
            if fruit == THERE:
                shapes.append(Shape("square", col + 0.5, row + 0.5, 0.56, kind, str(kind + 1), str(kind + 1)))
            elif fruit == SPOILED:
                shapes.append(Shape("cross", col + 0.5, row + 0.5, 0.4, NOBODY, "", "x"))
        cells = list(zip(s.row, s.col, strict=True))
        shapes += agent_discs(cells, [str(i + 1) for i in range(self.pickers)], s.picking, 0.84)
        picked, spoiled = (int(np.sum(np.asarray(state.fruit) == what)) for what in (PICKED, SPOILED))
        caption = f"step {s.clock}/{self.horizon}, {picked} of {len(s.fruit)} picked, {spoiled} spoiled"
        numbers = {"step": float(s.clock), "picked": float(picked), "spoiled": float(spoiled)}
        legend = "squares: fruit for the agent of that colour; cross: spoiled by another; ring: picks"
        return Scene(float(self.cols), float(self.rows), tuple(shapes), caption=caption, extra=numbers, legend=legend)

    def _observe(self, state: State) -> Observation:
        place, fruit = (
            jnp.stack(parts, axis=1) for parts in ((state.row, state.col), (state.fruit_row, state.fruit_col))
        )
        local = nearest_of_each_kind(place, fruit, state.fruit == THERE, self.pickers)
        avail = jnp.ones((self.pickers, len(ACTIONS)), bool)
        return Observation(local, local.reshape(-1), avail, jnp.arange(self.pickers))


def make_orchard(variant: str) -> Orchard:
    """Build ``orchard/<rows>x<cols>-<pickers>p-<fruits>f[-any]``."""
    found = re.fullmatch("(N)x(N)-(N)p-(N)f(-any)?".replace("N", "[0-9]{1,9}"), variant)
    if found is None:
        shape = "<rows>x<cols>-<pickers>p-<fruits>f[-any]"
        raise UserError(f"task: 'orchard/{variant}' is not {shape}; an example is 'orchard/6x6-3p-2f'")
    rows, cols, pickers, fruits = (int(found.group(i)) for i in range(1, 5))
    limits = (
        ("rows", rows, 2, LARGEST),
        ("columns", cols, 2, LARGEST),
        ("pickers", pickers, 2, rows * cols // 2),
        ("fruits of each kind", fruits, 1, rows * cols // max(pickers, 1) - 1),
    )
    check_limits(f"orchard/{variant}", limits)
    return Orchard(rows, cols, pickers, fruits, found.group(5) is not None)
