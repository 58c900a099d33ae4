"""What the numbers of an observation and of an action mean, with units, where an environment can say so."""

from collections.abc import Iterable
from dataclasses import dataclass

from prism_marl.envs import warehouse
from prism_marl.envs.board import ACTIONS
from prism_marl.envs.dispersion import make_dispersion
from prism_marl.envs.groups import make_groups
from prism_marl.envs.lbf_places import make_foraging
from prism_marl.envs.mamujoco.fields import fields, motors
from prism_marl.envs.mamujoco.tasks import find_task
from prism_marl.envs.matrix import make_matrix, make_pass
from prism_marl.envs.navigation import make_navigation
from prism_marl.envs.orchard import make_orchard
from prism_marl.envs.predator_prey import make_predator_prey
from prism_marl.envs.simple_spread import make_simple_spread
from prism_marl.envs.skirmish import make_battle
from prism_marl.envs.warehouse import make_warehouse


@dataclass(frozen=True)
class Meaning:
    """What the numbers of an observation and of an action are; empty where the environment does not say."""

    observation_names: tuple[str, ...] = ()
    observation_meaning: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()  # of discrete actions, or of the numbers of an action vector


def lbf_meaning(variant: str) -> Meaning:
    """Foraging."""
    found = make_foraging(variant).fields()
    moves = ("stay", "north", "south", "west", "east", "load")
    return Meaning(tuple(field.name for field in found), tuple(field.meaning for field in found), moves)


def roles_meaning(variant: str) -> Meaning:
    """The game of indices."""
    return Meaning(("one",), ("always 1",), tuple(f"play {agent}" for agent in range(int(variant))))


def groups_meaning(variant: str) -> Meaning:
    """The game of groups."""
    groups = range(make_groups(variant).groups)
    names = tuple(f"sign{sign}" for sign in groups)
    return Meaning(
        names, tuple(f"1 if the sign is {sign}" for sign in groups), tuple(f"play {play}" for play in groups)
    )


def matrix_meaning(variant: str) -> Meaning:
    """Tables of payoffs."""
    return Meaning(
        ("one",), ("always 1",), tuple(f"play {letter}" for letter in "abc"[: make_matrix(variant).spec.actions])
    )


def pass_meaning(variant: str) -> Meaning:
    """The gate."""
    turns = range(make_pass(variant).agents)
    return Meaning(("one",), ("always 1",), tuple(f"take turn {turn + 1}" for turn in turns))


def orchard_meaning(variant: str) -> Meaning:
    """Picking fruit."""
    return _on_a_board(make_orchard(variant).fields())


def dispersion_meaning(variant: str) -> Meaning:
    """Spreading over targets."""
    return _on_a_board(make_dispersion(variant).fields())


def navigation_meaning(variant: str) -> Meaning:
    """Going to goals."""
    return _on_a_board(make_navigation(variant).fields())


def simple_spread_meaning(variant: str) -> Meaning:
    """Covering landmarks."""
    return _on_a_board(make_simple_spread(variant).fields())


def predator_prey_meaning(variant: str) -> Meaning:
    """Hunting."""
    return _on_a_board(make_predator_prey(variant).fields())


def warehouse_meaning(variant: str) -> Meaning:
    """Fetching shelves."""
    names, meanings = zip(*make_warehouse(variant).fields(), strict=True)
    return Meaning(names, meanings, warehouse.ACTIONS)


def _on_a_board(fields: Iterable[tuple[str, str]]) -> Meaning:
    names, meanings = zip(*fields, strict=True)
    return Meaning(names, meanings, ACTIONS)


def reach_meaning(variant: str) -> Meaning:
    """The game of points."""
    del variant
    names, meanings = ("drift", "one", "minus_one"), ("the drift", "always 1", "always -1")
    return Meaning(names, meanings, ("x: first coordinate, -1 to 1", "y: second coordinate, -1 to 1"))


def robot_meaning(variant: str) -> Meaning:
    """Robots. Every agent has the same observation; its action is the torque of its own joints."""
    task = find_task(variant)
    found = fields(task)
    moved = [", ".join(motors(task)[place :: task.joints]) for place in range(task.joints)]
    actions = tuple(f"torque, -1 to 1 of the motor's range, of one of: {names}" for names in moved)
    return Meaning(tuple(field.name for field in found), tuple(field.meaning for field in found), actions)


def battle_meaning(variant: str) -> Meaning:
    """Battles: where an agent may walk, the enemies, the allies, itself; names as in docs/environments.md."""
    env = make_battle(variant)
    body = ["health", *(["shield"] if env.table.shielded else [])]
    types = [f"is_{unit.name}" for unit in env.table.units]
    seen = ["distance", "dx", "dy", *body, *types]
    names = [f"move.{way}" for way in ("north", "south", "east", "west")]
    names += [f"enemy{k}.{part}" for k in range(env.enemies) for part in ("target", *seen)]
    names += [f"ally{k}.{part}" for k in range(env.spec.ids - 1) for part in ("seen", *seen)]
    names += [f"self.{part}" for part in (*body, "x", "y", *types)]
    actions = ("no-op", "stop", "north", "south", "east", "west")
    targets = tuple(f"attack enemy {k}, or heal agent {k}" for k in range(env.enemies))
    return Meaning(tuple(names), tuple(map(_in_words, names)), (*actions, *targets))


_BATTLE_UNITS = {
    "target": "1: legal target now",
    "seen": "1: alive and within sight",
    "distance": "between centres, over the agent's sight",
    "dx": "to the east, over the agent's sight",
    "dy": "to the north, over the agent's sight",
    "health": "share of the health that is left",
    "shield": "share of the shield that is left",
    "x": "over the width of the map",
    "y": "over the height of the map",
}


def _in_words(name: str) -> str:
    """The meaning of a battle's field, with its unit."""
    who, _, part = name.partition(".")
    if who == "move":
        return f"1: may walk {part}"
    return _BATTLE_UNITS.get(part, f"1: {part.removeprefix('is_')}")
