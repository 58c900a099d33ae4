"""What games on a board share: agents that walk one cell a step, what they see of things, and how they are drawn.

Places are [row, column], counted from the upper left corner.
"""

from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.errors import UserError
from prism_marl.scene import Shape

ACTIONS = ("stay", "north", "south", "west", "east")
DOWN, RIGHT = np.array([0, -1, 1, 0, 0]), np.array([0, 0, 0, -1, 1])  # what each action adds to row and column


def walk(place: Int[Array, "a 2"], action: Int[Array, " a"], side: int) -> Int[Array, "a 2"]:
    """Where agents on a square board stand after a step; walls stop them, others do not."""
    return jnp.clip(place + jnp.stack([DOWN, RIGHT], axis=1)[action], 0, side - 1)


def sample_places(key: Key[Array, ""], number: int, cells: Int[np.ndarray, " c"], side: int) -> Int[Array, "n 2"]:
    """Different places among some cells of a board."""
    chosen = jax.random.permutation(key, jnp.asarray(cells))[:number]
    return jnp.stack([chosen // side, chosen % side], axis=1).astype(jnp.int32)


def steps_between(one: Int[Array, "n 2"], other: Int[Array, "m 2"]) -> Int[Array, "n m"]:
    """How many steps it is from each place to each other."""
    return jnp.sum(jnp.abs(one[:, None] - other), axis=-1)


def towards(place: Int[Array, "a 2"], aim: Int[Array, "a 2"]) -> Int[Array, " a"]:
    """The action that brings each agent nearer to its aim: along the longer way first, and stay on the aim."""
    down, right = jnp.moveaxis(aim - place, -1, 0)
    vertical = jnp.where(down > 0, 2, 1)
    horizontal = jnp.where(right > 0, 4, 3)
    return jnp.where(down**2 + right**2 == 0, 0, jnp.where(jnp.abs(down) >= jnp.abs(right), vertical, horizontal))


def nearest_of_each_kind(
    place: Int[Array, "a 2"], thing: Int[Array, "f 2"], there: Bool[Array, " f"], kinds: int
) -> Float[Array, "a o"]:
    """Down, right and 1 for each thing; in a kind the nearest first, and zeros for things that are gone. Things are
    given kind by kind, equally many of each."""
    each = thing.shape[0] // kinds
    shape = (place.shape[0], kinds, each)
    seen = jnp.broadcast_to(there, (shape[0], kinds * each)).reshape(shape)
    down, right = (part.reshape(shape) for part in jnp.moveaxis(thing - place[:, None], -1, 0))
    beyond = jnp.iinfo(jnp.int16).max  # further than anything on a board
    far = jnp.where(seen, jnp.abs(down) + jnp.abs(right), beyond) * each + np.arange(
        each
    )  # of two equally far the first
    rank = jnp.sum(far[..., :, None] > far[..., None, :], axis=-1)  # how many of its kind are nearer
    chosen = (rank[..., None, :] == np.arange(each)[:, None]) & seen[..., None, :]
    parts = [jnp.sum(chosen * part[..., None, :], axis=-1) for part in (down, right, seen)]
    return jnp.stack(parts, axis=-1).reshape(shape[0], -1).astype(jnp.float32)


def kind_fields(kinds: int, each: int, thing: str) -> list[tuple[str, str]]:
    """The names and meanings of what ``nearest_of_each_kind`` returns."""
    found: list[tuple[str, str]] = []
    for kind in range(kinds):
        for k in range(each):
            which = f"{thing} of kind {kind}, number {k} from the nearest"
            found += [
                (f"kind{kind}.{k}.down", f"rows from the agent down to {which}; 0 if there is none"),
                (f"kind{kind}.{k}.right", f"columns from the agent to the right to {which}; 0 if there is none"),
                (f"kind{kind}.{k}.there", f"1: there is {which}"),
            ]
    return found


SELF_FIELDS = (
    ("self.down", "rows from the middle of the board down to the agent"),
    ("self.right", "columns from the middle of the board to the right to the agent"),
)


def way_fields(name: str, what: str) -> list[tuple[str, str]]:
    """Names and meanings of the way from an agent to something."""
    return [
        (f"{name}.down", f"rows from the agent down to {what}"),
        (f"{name}.right", f"columns from the agent to the right to {what}"),
    ]


def side_by_side(cells: Sequence[tuple[int, int]]) -> list[float]:
    """Where things on cells (row, column) are drawn from left to right, so that those on one cell are all seen."""
    return [
        col + 0.2 + 0.3 * (2 * cells[:i].count((row, col)) + 1) / cells.count((row, col))
        for i, (row, col) in enumerate(cells)
    ]


def agent_discs(
    cells: Sequence[tuple[int, int]], labels: Sequence[str], rings: Iterable[object], size: float = 0.8
) -> list[Shape]:
    """Agents as discs; those on one cell are drawn side by side."""
    shapes: list[Shape] = []
    drawn = zip(cells, side_by_side(cells), labels, rings, strict=True)
    for i, ((row, _), x, label, ring) in enumerate(drawn):
        glyph = chr(ord("A") + i) if i < 26 else "@"
        shapes.append(Shape("disc", x, row + 0.5, size, i, label, glyph, bool(ring)))
    return shapes


def check_limits(task: str, limits: Sequence[tuple[str, int, int, int]]) -> None:
    """Raise unless each (name, value, lowest, highest) of a task holds."""
    for field, value, low, high in limits:
        if (near := min(max(value, low), high)) != value:
            raise UserError(f"task: '{task}' has {field} {value}, not {low} to {high}; try {near}")
