"""The multi-robot warehouse with the rules of rware 2.0.0 (its ``-v2`` tasks), in JAX.

Robots turn and drive on a grid, slide under shelves, lift them and carry requested ones to a goal. Robots under a
shelf pass each other's ways freely; those that carry one need the cell free of standing shelves.
"""

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.envs.board import check_limits, sample_places
from prism_marl.envs.diversity import Diversity
from prism_marl.envs.traffic import who_drives
from prism_marl.errors import UserError
from prism_marl.scene import FOE, GOAL, NOBODY, Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step

ACTIONS = ("wait", "forward", "left", "right", "load or unload")
WAIT, FORWARD, LEFT, RIGHT, TOGGLE = range(5)
DIRECTIONS = ("up", "down", "left", "right")
DOWN_BY, RIGHT_BY = np.array([-1, 1, 0, 0]), np.array([0, 0, -1, 1])  # what driving adds to row and column
LEFT_OF, RIGHT_OF = np.array([2, 3, 1, 0]), np.array([3, 2, 0, 1])  # directions after a turn
AROUND = ("nw", "n", "ne", "w", "here", "e", "sw", "s", "se")  # cells in sight, row by row
SELF, CELL = 4 + len(DIRECTIONS), 3 + len(DIRECTIONS)  # numbers that describe an agent itself, and a cell in sight
SIZES = {"tiny": (1, 3), "small": (2, 3), "medium": (2, 5), "large": (3, 5)}  # rows and columns of shelf blocks
HEIGHT = 8  # of the blocks in these
HORIZON = 500
MOST = 19  # agents, as in the package


class State(NamedTuple):
    """Places as row and column; shelves by where they stood at first, row by row."""

    place: Int[Array, "a 2"]
    facing: Int[Array, " a"]
    carried: Int[Array, " a"]  # number of the shelf; -1: none
    shelf: Int[Array, "s 2"]
    requested: Bool[Array, " s"]
    delivered: Int[Array, ""]  # so far
    clock: Int[Array, ""]


@dataclass(frozen=True)
class Warehouse:
    """One task; the reward is the number of requested shelves that are brought to a goal."""

    name: str
    rows: int  # of shelf blocks
    columns: int
    height: int  # of a block
    agents: int
    requests: int
    horizon: int = HORIZON
    own: bool = False  # every agent also has a reward of its own: what it delivers itself

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the grid."""
        return (self.height + 1) * self.rows + 2, 3 * self.columns + 1

    @property
    def goals(self) -> Int[np.ndarray, "2 2"]:
        """In the middle of the lowest row."""
        rows, cols = self.size
        return np.array([[rows - 1, cols // 2 - 1], [rows - 1, cols // 2]])

    @property
    def highway(self) -> Bool[np.ndarray, "r c"]:
        """Cells that are not for shelves: between blocks, in the lowest row, and in a queue above the goals."""
        rows, cols = self.size
        row, col = np.indices(self.size)
        queue = (row > rows - self.height - 3) & ((col == cols // 2 - 1) | (col == cols // 2))
        return (col % 3 == 0) | (row % (self.height + 1) == 0) | (row == rows - 1) | queue

    @property
    def spec(self) -> EnvSpec:
        size = SELF + len(AROUND) * CELL
        flags = tuple(range(2, size))
        return EnvSpec(
            name=self.name,
            agents=self.agents,
            observation=size,
            state=size * self.agents,
            actions=len(ACTIONS),
            roles=self.agents,
            horizon=self.horizon,
            version="rware-2.0.0",
            metrics=("carrying",),
            storage="int8",
            magnitude=float(max(self.size)),
            state_is_joint=True,
            reward="agent" if self.own else "team",
            flags=flags,
            state_flags=tuple(k * size + flag for k in range(self.agents) for flag in flags),
        )

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        """Agents on any cells, shelves on all of theirs, and different shelves requested."""
        place_key, facing_key, request_key = jax.random.split(key, 3)
        rows, cols = self.size
        shelf = np.argwhere(~self.highway)
        order = jax.random.permutation(request_key, len(shelf))
        state = State(
            sample_places(place_key, self.agents, np.arange(rows * cols), cols),
            jax.random.randint(facing_key, (self.agents,), 0, len(DIRECTIONS)),
            jnp.full(self.agents, -1, jnp.int32),
            jnp.asarray(shelf, jnp.int32),
            order < self.requests,
            jnp.int32(0),
            jnp.int32(0),
        )
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        """All drive, turn or lift at once; then shelves on the goals are counted and new ones requested."""
        place, carried, shelf = self._drive(state, action)
        turned = jnp.where(action == LEFT, jnp.asarray(LEFT_OF)[state.facing], jnp.asarray(RIGHT_OF)[state.facing])
        facing = jnp.where((action == LEFT) | (action == RIGHT), turned, state.facing)
        requested, each = state.requested, jnp.zeros(self.agents, jnp.float32)
        for number, goal in enumerate(self.goals):
            brought = requested & (shelf == goal).all(axis=1)
            fresh = jax.random.uniform(jax.random.fold_in(key, number), requested.shape)
            new = jnp.argmax(jnp.where(requested, -1.0, fresh)) == jnp.arange(requested.size)
            requested = jnp.where(brought.any(), (requested & ~brought) | new, requested)
            each += brought.any() & (place == goal).all(axis=1)
        delivered, clock = state.delivered + each.sum().astype(jnp.int32), state.clock + 1
        state = State(place, facing, carried, shelf, requested, delivered, clock)
        return state, Step(
            self._observe(state),
            reward=each.sum(),
            terminated=jnp.bool_(False),
            truncated=clock >= self.horizon,
            metrics={"carrying": jnp.mean(carried >= 0, dtype=jnp.float32)},
            agent_reward=each if self.own else None,
        )

    def fields(self) -> tuple[tuple[str, str], ...]:
        """The name and meaning of every number of an observation."""
        found = [("self.x", "column of the agent"), ("self.y", "row of the agent, counted from the upper edge")]
        found += [("self.carrying", "1: it carries a shelf")]
        found += [(f"self.{way}", f"1: it faces {way}") for way in DIRECTIONS]
        found += [("self.highway", "1: its cell is not for shelves")]
        for cell in AROUND:
            where = "in the agent's own cell" if cell == "here" else f"in the next cell to the {cell.upper()}"
            found += [(f"{cell}.agent", f"1: there is an agent {where}")]
            found += [
                (f"{cell}.{way}", f"1: the agent {where} faces {way}" + (", or nobody is there" if way == "up" else ""))
                for way in DIRECTIONS
            ]
            found += [(f"{cell}.shelf", f"1: there is a shelf {where}")]
            found += [(f"{cell}.requested", f"1: a requested shelf is {where}")]
        return tuple(found)

    def scene(self, state: State) -> Scene:
        """Squares for shelves, green if requested; discs for agents, whose bar points ahead; a ring: it carries."""
        rows, cols = self.size
        shapes = [Shape("square", c + 0.5, r + 0.5, 0.98, FOE, "G", "G") for r, c in self.goals.tolist()]
        for (row, col), wanted in zip(state.shelf.tolist(), state.requested.tolist(), strict=True):
            shapes.append(
                Shape("square", col + 0.5, row + 0.5, 0.9, GOAL if wanted else NOBODY, "", "+" if wanted else "#")
            )
        agents = zip(state.place.tolist(), state.facing.tolist(), state.carried.tolist(), strict=True)
        for i, ((row, col), facing, carried) in enumerate(agents):
            x, y, glyph = col + 0.5, row + 0.5, chr(ord("A") + i)
            right, down = 0.42 * float(RIGHT_BY[facing]), 0.42 * float(DOWN_BY[facing])
            shapes.append(Shape("bar", x, y, 0.16, i, glyph="", dx=right, dy=down))
            shapes.append(Shape("disc", x, y, 0.6, i, str(i + 1), glyph, carried >= 0))
        caption = f"step {int(state.clock)}/{self.horizon}, {int(state.delivered)} shelves delivered"
        numbers = {"step": float(state.clock), "delivered": float(state.delivered)}
        legend = "squares: shelves, green ones requested; G: goals; bar: where an agent faces; ring: carries"
        return Scene(float(cols), float(rows), tuple(shapes), caption=caption, extra=numbers, legend=legend)

    def _drive(
        self, state: State, action: Int[Array, " a"]
    ) -> tuple[Int[Array, "a 2"], Int[Array, " a"], Int[Array, "s 2"]]:
        """Where agents are then, what they carry, and where the shelves are."""
        place, loaded = state.place, state.carried >= 0
        ahead = place + jnp.stack([jnp.asarray(DOWN_BY), jnp.asarray(RIGHT_BY)], axis=1)[state.facing]
        target = jnp.where((action == FORWARD)[:, None], jnp.clip(ahead, 0, np.array(self.size) - 1), place)
        shelf_there = (target[:, None] == state.shelf).all(axis=2).any(axis=1)
        leaves = ((target[:, None] == place).all(axis=2) & loaded).any(axis=1)  # it is carried, so it may leave
        blocked = loaded & shelf_there & ~leaves
        drives = who_drives(place, target, (target != place).any(axis=1) & ~blocked)
        after = jnp.where(drives[:, None], target, place)
        held = state.carried[:, None] == jnp.arange(state.shelf.shape[0])  # [a, s]
        shelf = jnp.where(held.any(axis=0)[:, None], held.T.astype(jnp.int32) @ after, state.shelf)
        under = (place[:, None] == state.shelf).all(axis=2)
        lifted = jnp.where(under.any(axis=1), jnp.argmax(under, axis=1), -1)
        put = jnp.where(jnp.asarray(self.highway)[place[:, 0], place[:, 1]], state.carried, -1)
        toggled = jnp.where(loaded, put, lifted).astype(jnp.int32)
        return after, jnp.where(action == TOGGLE, toggled, state.carried), shelf

    def _observe(self, state: State) -> Observation:
        """As the package flattens it: the agent itself, then the nine cells around it, row by row."""
        n, faces = self.agents, jax.nn.one_hot(state.facing, len(DIRECTIONS))
        on_highway = jnp.asarray(self.highway)[state.place[:, 0], state.place[:, 1]]
        carries = state.carried >= 0
        own = jnp.concatenate([state.place[:, ::-1], carries[:, None], faces, on_highway[:, None]], axis=1)
        offsets = np.array(list(np.ndindex(3, 3))) - 1  # row by row
        cells = state.place[:, None] + offsets  # [a, 9, 2]
        agent = (cells[:, :, None] == state.place).all(axis=-1)  # [a, 9, a]
        shelf = (cells[:, :, None] == state.shelf).all(axis=-1)  # [a, 9, s]
        there = agent.any(axis=-1)[..., None]
        nobody = jnp.asarray(np.eye(len(DIRECTIONS))[0])  # as the package writes it
        facing = jnp.where(there, agent.astype(jnp.float32) @ faces, nobody)
        wanted = (shelf & state.requested).any(axis=-1)[..., None]
        seen = jnp.concatenate([there, facing, shelf.any(axis=-1)[..., None], wanted], axis=-1)
        local: Float[Array, "a o"] = jnp.concatenate([own, seen.reshape(n, -1)], axis=1).astype(jnp.float32)
        avail = jnp.ones((n, len(ACTIONS)), bool)
        return Observation(local, local.reshape(-1), avail, jnp.arange(n))


def make_warehouse(variant: str) -> Warehouse:
    """Build ``warehouse/<tiny|small|medium|large>-<agents>ag[-easy|-hard]`` with rware's settings, or
    ``warehouse/<rows>x<columns>-<height>h-<agents>ag-<requests>req`` of any size; then ``[-own][-t<steps>]``."""
    pattern = f"(?:({'|'.join(SIZES)})-(N)ag(-easy|-hard)?|(N)x(N)-(N)h-(N)ag-(N)req)(-own)?(?:-t(N))?"
    found = re.fullmatch(pattern.replace("N", "[0-9]{1,9}"), variant)
    task = f"warehouse/{variant}"
    if found is None:
        raise UserError(
            f"task: '{task}' is not <{'|'.join(SIZES)}>-<agents>ag[-easy|-hard][-own][-t<steps>] or "
            "<rows>x<columns>-<height>h-<agents>ag-<requests>req[-own][-t<steps>]; an example is 'warehouse/tiny-2ag'"
        )
    if found[1]:
        (rows, columns), height, agents = SIZES[found[1]], HEIGHT, int(found[2])
        requests = {None: agents, "-easy": 2 * agents, "-hard": agents // 2}[found[3]]
    else:
        rows, columns, height, agents, requests = (int(found[k]) for k in range(4, 9))
    horizon = HORIZON if found[10] is None else int(found[10])
    check_limits(
        task,
        [
            ("rows", rows, 1, 8),
            ("columns", columns, 3, 9),
            ("height", height, 1, 15),
            ("agents", agents, 2, MOST),
            ("steps", horizon, 1, 10_000),
        ],
    )
    if columns % 2 == 0:
        raise UserError(f"task: '{task}' has {columns} columns, and the goals need an odd number; try {columns + 1}")
    env = Warehouse(task, rows, columns, height, agents, requests, horizon, bool(found[9]))
    check_limits(task, [("requests", requests, 1, int((~env.highway).sum()) - 1)])
    return env


def warehouse_diversity(variant: str) -> Diversity:
    """In shares of the best return, which is not known. Whatever unlike agents can do, alike ones do it by chance."""
    n = make_warehouse(variant).agents
    share = math.factorial(n) / n**n
    reason = (
        "in shares of the best return of unlike agents: each agent can take one of their n policies by the cell where "
        "it started, and then all n are there at least that often; nothing that happens is worth less than 0"
    )
    return Diversity(share, 1.0, reason, "at most")
