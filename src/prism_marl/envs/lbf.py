"""Level-Based Foraging in pure JAX, with the rules of lbforaging 2.0.0 (its ``-v3`` tasks).

Players walk on a grid and load food. A food is eaten when the levels of the players that load it add up to its level.
Foods are always more than ``FOOD_DISTANCE`` steps apart, so no player is next to two of them and the order of loading
does not matter. ``step`` only compares small arrays, which XLA fuses into few kernels.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from prism_marl.envs.board import agent_discs, check_limits
from prism_marl.errors import UserError
from prism_marl.scene import Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step

STAY, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
HORIZON = 50
PLAYER_LEVELS = 2  # players have level 1 or 2
SHARERS = 3  # a food never needs more than the three weakest players together
FOOD_DISTANCE = 2  # two foods are always further apart than this, counted in steps on the grid
LARGEST = 127  # coordinates are stored as int8
NUMBER = "[0-9]{1,9}"  # in a task name


class State(NamedTuple):
    """Players by index; foods in row-major order, so that the observation need not sort them."""

    row: Int[Array, " a"]
    col: Int[Array, " a"]
    level: Int[Array, " a"]
    loading: Bool[Array, " a"]  # which players loaded in the last step; used by drawings only
    food_row: Int[Array, " f"]  # -1 if this food could not be placed
    food_col: Int[Array, " f"]
    food_level: Int[Array, " f"]  # 0 once eaten
    spawned: Int[Array, ""]  # sum of the food levels at the start
    clock: Int[Array, ""]


@dataclass(frozen=True)
class Field:
    """One number of an agent's observation."""

    index: int
    name: str
    meaning: str
    low: int
    high: int


@dataclass(frozen=True)
class Foraging:
    """One task."""

    rows: int
    cols: int
    players: int
    foods: int
    coop: bool = False  # every food has the highest level that the players can load together
    sight: int | None = None  # how many cells a player sees on each side; None: everything
    lighter: bool = False  # as in lbforaging's older ``-v2`` tasks, foods have less than the highest level
    horizon: int = HORIZON
    own: bool = False  # every player also has a reward of its own: its share of the food that it loads

    @property
    def spec(self) -> EnvSpec:
        size = 3 * (self.foods + self.players)
        tail = ("-coop" if self.coop else "") + (f"-s{self.sight}" if self.sight else "") + ("-own" if self.own else "")
        tail += ("-v2" if self.lighter else "") + (f"-t{self.horizon}" if self.horizon != HORIZON else "")
        return EnvSpec(
            name=f"lbf/{self.rows}x{self.cols}-{self.players}p-{self.foods}f{tail}",
            agents=self.players,
            observation=size,
            state=size * self.players,
            actions=LOAD + 1,
            roles=self.players,
            horizon=self.horizon,
            version=f"lbforaging-2.0.0-{'v2' if self.lighter else 'v3'}",
            metrics=("collected",),
            storage="int8",
            magnitude=float(max(self.rows, self.cols)),
            state_is_joint=True,
            reward="agent" if self.own else "team",
        )

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        """Place players on any cells, then foods on inner cells that keep their distance."""
        cells_key, level_key, food_key = jax.random.split(key, 3)
        # Random priorities put all cells into a random order. Trying cells in this order is the same as sampling
        # cells until one is free, because an occupied cell stays occupied. (The original gives up after 1000
        # samples, which on its registered tasks misses a free cell with probability below 1e-9.)
        cells = self.rows * self.cols
        number = 1 + np.arange(cells, dtype=np.uint32).reshape(self.rows, self.cols)
        priority = (jax.random.bits(cells_key, number.shape) << cells.bit_length()) | number
        priority, cell = self._place(priority, self.players, distance=0)
        inner = np.pad(np.ones((self.rows - 2, self.cols - 2), bool), 1)
        _, food = self._place(jnp.where(inner, priority, 0), self.foods, FOOD_DISTANCE)
        food = jnp.sort(jnp.where(food < 0, cells, food))
        placed = food < cells
        level = jax.random.randint(level_key, (self.players,), 1, PLAYER_LEVELS + 1)
        most = jnp.sum(jnp.sort(level)[:SHARERS])
        sampled = most if self.coop else jax.random.randint(food_key, (self.foods,), 1, most + (not self.lighter))
        food_level = jnp.where(placed, sampled, 0)
        state = State(
            cell // self.cols,
            cell % self.cols,
            level,
            loading=jnp.zeros(self.players, bool),
            food_row=jnp.where(placed, food // self.cols, -1),
            food_col=jnp.where(placed, food % self.cols, -1),
            food_level=food_level,
            spawned=jnp.sum(food_level),
            clock=jnp.int32(0),
        )
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        """All players move at once; then the players that are next to food and chose LOAD load it."""
        del key  # only ``reset`` is random
        row, col = self._move(state, action)
        pulls = _beside(state) & (action == LOAD)[:, None]
        power = jnp.sum(pulls * state.level[:, None], axis=0)
        eaten = power >= state.food_level  # also true for foods eaten before, whose level is 0
        gains, levels = eaten * state.food_level, jnp.maximum(state.spawned, 1).astype(jnp.float32)
        shares = jnp.sum(pulls * state.level[:, None] * gains / jnp.maximum(power, 1), axis=1) / levels
        food_level = jnp.where(eaten, 0, state.food_level)
        clock = state.clock + 1
        cleared = jnp.all(food_level == 0)
        loading = pulls.any(axis=1)
        state = state._replace(row=row, col=col, loading=loading, food_level=food_level, clock=clock)
        return state, Step(
            self._observe(state),
            # each loading player gets its share of the food's level, so the team gets the level
            reward=jnp.sum(gains) / levels,
            terminated=cleared,
            truncated=(clock >= self.horizon) & ~cleared,
            metrics={"collected": _collected(state)},
            agent_reward=shares if self.own else None,
        )

    def valid_actions(self, state: State) -> Bool[Array, "a u"]:
        """The valid actions by the rules. Agents do not observe them; an invalid action means to stay."""
        free = [self._enterable(state, *_target(state, action)) for action in range(LOAD)]
        return jnp.stack([*free, _beside(state).any(axis=1)], axis=1)

    def fields(self) -> tuple[Field, ...]:
        """Every number of one agent's observation, in order."""
        origin = "" if self.sees_all else ", from the upper left corner of what the agent sees"
        most = PLAYER_LEVELS * min(self.players, SHARERS)
        things = [(f"food{k}", f"visible food {k} in row-major order", most) for k in range(self.foods)]
        things += [("self", "the agent itself", PLAYER_LEVELS)]
        things += [(f"mate{k}", f"visible mate {k} by index", PLAYER_LEVELS) for k in range(self.players - 1)]
        out: list[Field] = []
        for name, what, level in things:
            low = 0 if name == "self" else -1  # an agent always sees itself, other entries may be empty
            empty = ("", "") if name == "self" else ("; -1 if there is none", "; 0 if there is none")
            for part, size in (("row", self.rows), ("column", self.cols)):
                high = size - 1 if self.sees_all else min(size - 1, 2 * (self.sight or 0))
                out.append(Field(len(out), f"{name}.{part}", f"{part} of {what}{origin}{empty[0]}", low, high))
            out.append(Field(len(out), f"{name}.level", f"level of {what}{empty[1]}", low + 1, level))
        return tuple(out)

    def scene(self, state: State) -> Scene:
        """Discs for players, squares for food, both labelled with their level; a ring means loading."""
        s = State(*(x.tolist() for x in jax.device_get(state)))
        foods = zip(s.food_row, s.food_col, s.food_level, strict=True)
        shapes = [Shape("square", c + 0.5, r + 0.5, 0.8, -1, str(n), "*") for r, c, n in foods if n > 0]
        cells = list(zip(s.row, s.col, strict=True))
        shapes += agent_discs(cells, list(map(str, s.level)), s.loading)
        collected = float(_collected(state))
        caption = f"step {s.clock}/{HORIZON}, {collected:.0%} of the food collected"
        numbers = {"step": float(s.clock), "collected": collected}
        return Scene(float(self.cols), float(self.rows), tuple(shapes), caption=caption, extra=numbers)

    @property
    def sees_all(self) -> bool:
        return self.sight is None or self.sight >= max(self.rows, self.cols) - 1

    def _place(
        self, priority: UInt[Array, "rows cols"], count: int, distance: int
    ) -> tuple[UInt[Array, "rows cols"], Int[Array, " n"]]:
        """Take the cell of highest priority ``count`` times (-1: none is left); each time block cells in ``distance``.

        The low bits of a priority are the cell's number plus one, so one maximum finds the cell; 0 means blocked.
        """
        rows, cols = np.indices((self.rows, self.cols))
        low = (1 << (self.rows * self.cols).bit_length()) - 1

        def take(free: Array, _: None) -> tuple[Array, Array]:
            cell = (jnp.max(free) & low).astype(jnp.int32) - 1
            near = jnp.abs(rows - cell // self.cols) + jnp.abs(cols - cell % self.cols) <= distance
            return jnp.where(near, 0, free), cell

        return jax.lax.scan(take, priority, None, length=count)

    def _enterable(self, state: State, row: Int[Array, " a"], col: Int[Array, " a"]) -> Bool[Array, " a"]:
        """Whether cells are inside the grid and without food; other players do not matter here."""
        food = (row[:, None] == state.food_row) & (col[:, None] == state.food_col) & (state.food_level > 0)
        return (row >= 0) & (row < self.rows) & (col >= 0) & (col < self.cols) & ~food.any(axis=1)

    def _move(self, state: State, action: Int[Array, " a"]) -> tuple[Int[Array, " a"], Int[Array, " a"]]:
        """Agents with the same target cell all stay; the target of an agent that stays is its own cell.

        Swapping and following are allowed. Two agents can end on one cell: an agent that follows another one moves
        even if the other one has to stay.
        """
        row, col = _target(state, action)
        free = self._enterable(state, row, col)
        row, col = jnp.where(free, row, state.row), jnp.where(free, col, state.col)
        others = ~np.eye(self.players, dtype=bool)
        clash = ((row[:, None] == row) & (col[:, None] == col) & others).any(axis=1)
        return jnp.where(clash, state.row, row), jnp.where(clash, state.col, col)

    def _observe(self, state: State) -> Observation:
        mates = [_self_first(x) for x in (state.row, state.col, state.level)]
        foods = [x[None, :] for x in (state.food_row, state.food_col, state.food_level)]
        seen_food = foods[2] > 0
        if self.sees_all:
            food = jnp.broadcast_to(_compact(seen_food, *foods), (self.players, self.foods, 3))
            mate = jnp.stack(mates, axis=-1)
        else:
            sight, row, col = self.sight or 0, state.row[:, None], state.col[:, None]
            top, left = jnp.maximum(row - sight, 0), jnp.maximum(col - sight, 0)
            seen_food &= (jnp.abs(foods[0] - row) <= sight) & (jnp.abs(foods[1] - col) <= sight)
            food = _compact(seen_food, foods[0] - top, foods[1] - left, foods[2])
            # A different window than for food: at the upper and left border the original shows players twice as far.
            y, x = mates[0] - top, mates[1] - left
            seen = (y >= 0) & (x >= 0) & (y <= 2 * sight) & (x <= 2 * sight)
            mate = _compact(seen, y, x, mates[2])
        local = jnp.concatenate([food, mate], axis=1).reshape(self.players, -1).astype(jnp.float32)
        avail = jnp.ones((self.players, LOAD + 1), bool)
        return Observation(local, local.reshape(-1), avail, jnp.arange(self.players))


def _target(state: State, action: Int[Array, " a"] | int) -> tuple[Int[Array, " a"], Int[Array, " a"]]:
    """The target cell of each agent."""
    return state.row + (action == SOUTH) - (action == NORTH), state.col + (action == EAST) - (action == WEST)


def _beside(state: State) -> Bool[Array, "a f"]:
    """Whether each agent is one step away from each food that is left."""
    rows, cols = state.row[:, None] - state.food_row, state.col[:, None] - state.food_col
    return (jnp.abs(rows) + jnp.abs(cols) == 1) & (state.food_level > 0)


def _collected(state: State) -> Float[Array, ""]:
    """The share of foods that is eaten."""
    spawned, left = jnp.sum(state.food_row >= 0), jnp.sum(state.food_level > 0)
    return (spawned - left) / jnp.maximum(spawned, 1).astype(jnp.float32)


def _self_first(x: Int[Array, " a"]) -> Int[Array, "a a"]:
    """Row i: the entry of agent i, then those of the others by index."""
    agent, slot = np.indices((x.size, x.size))
    return jnp.where(slot == 0, x[:, None], jnp.where(slot <= agent, jnp.roll(x, 1), x))


def _compact(
    seen: Bool[Array, "a n"], y: Int[Array, "a n"], x: Int[Array, "a n"], level: Int[Array, "#a n"]
) -> Int[Array, "a n 3"]:
    """Move visible entries to the front, in order; the rest is (-1, -1, 0)."""
    n = seen.shape[1]
    rank = jnp.sum(seen[:, None, :] & np.tri(n, k=-1, dtype=bool), axis=2)
    slot = (rank[:, None, :] == np.arange(n)[:, None]) & seen[:, None, :]
    pick = [jnp.sum(slot * v[:, None, :], axis=2) for v in (y + 1, x + 1, level)]
    return jnp.stack([pick[0] - 1, pick[1] - 1, pick[2]], axis=-1)


def _guess(variant: str) -> str:
    """A valid name close to a misspelt variant: the parts that can be read, and 10x10-3p-3f for the rest."""
    shapes = ("(N)x", "x(N)", "(N)p", "(N)f", "s(N)|(N)s")
    found = (re.search(shape.replace("N", NUMBER), variant) for shape in shapes)
    rows, cols, players, foods, sight = (int(f.group(f.lastindex or 0)) if f else None for f in found)
    tail = ("coop" in variant, sight, False, HORIZON, "-own" in variant)
    return Foraging(rows or 10, cols or 10, players or 3, foods or 3, *tail).spec.name


def make_lbf(variant: str) -> Foraging:
    """Build ``lbf/<rows>x<cols>-<players>p-<foods>f[-coop][-s<sight>][-own][-v2][-t<steps>]``."""
    pattern = "(N)x(N)-(N)p-(N)f(-coop)?(?:-s(N))?(-own)?(-v2)?(?:-t(N))?"
    found = re.fullmatch(pattern.replace("N", NUMBER), variant)
    if found is None:
        shape = "<rows>x<cols>-<players>p-<foods>f[-coop][-s<sight>][-own][-v2][-t<steps>]"
        raise UserError(f"task: 'lbf/{variant}' is not {shape}; did you mean '{_guess(variant)}'?")
    rows, cols, players, foods = (int(found.group(i)) for i in range(1, 5))
    sight = None if found.group(6) is None else int(found.group(6))
    horizon = HORIZON if found.group(9) is None else int(found.group(9))
    limits = (
        ("rows", rows, 3, LARGEST),
        ("cols", cols, 3, LARGEST),
        # A food and its four neighbours do not overlap with another food's, and none of them is a corner.
        ("foods", foods, 1, (rows * cols - 4) // 5),
        ("players", players, 2, rows * cols - foods),
        ("sight", 1 if sight is None else sight, 1, max(rows, cols)),
        ("steps", horizon, 1, 10_000),
    )
    check_limits(f"lbf/{variant}", limits)
    coop, own, lighter = (bool(found.group(i)) for i in (5, 7, 8))
    return Foraging(rows, cols, players, foods, coop, sight, lighter, horizon, own)
