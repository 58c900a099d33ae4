"""Task names to environments: ``family/variant``. A new environment is one file and one entry in ``_FAMILIES``."""

import difflib
import functools
from collections.abc import Callable
from dataclasses import dataclass

from prism_marl.envs.base import JaxEnv, PythonEnv, RowsEnv
from prism_marl.envs.groups import make_groups
from prism_marl.envs.jaxmarl import make_jaxmarl
from prism_marl.envs.lbf_places import make_foraging
from prism_marl.envs.mamujoco import ROBOTS, make_mamujoco, mamujoco_spec
from prism_marl.envs.meaning import (
    Meaning,
    battle_meaning,
    groups_meaning,
    lbf_meaning,
    orchard_meaning,
    reach_meaning,
    robot_meaning,
    roles_meaning,
)
from prism_marl.envs.orchard import make_orchard
from prism_marl.envs.python.lbforaging import make_lbforaging
from prism_marl.envs.python.pettingzoo import make_pettingzoo
from prism_marl.envs.python.rows import Games, PythonRows
from prism_marl.envs.python.smacv2 import make_smacv2, smacv2_spec
from prism_marl.envs.reach import make_reach, reach_spec
from prism_marl.envs.reach_jax import make_reach_jax
from prism_marl.envs.roles import make_roles
from prism_marl.envs.skirmish import RACES, make_battle
from prism_marl.envs.workers.pool import WorkerPool
from prism_marl.errors import UserError, nearest
from prism_marl.registration import check_name, refuse_taken_name
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class Family:
    """A family of tasks: how its tasks are written, and the function that builds them. Give one of ``make`` (JAX),
    ``python`` (one game) and ``rows`` (many games on the host); it receives what follows the slash."""

    pattern: str
    examples: tuple[str, ...]
    about: str
    make: Callable[[str], JaxEnv] | None = None  # compiled with the training program
    shape: Callable[[str], EnvSpec] | None = None  # sizes, known without building anything
    python: Callable[[str], PythonEnv] | None = None  # one episode at a time in Python
    workers: bool = False  # ``python`` may be played in other processes, which can build it from its name alone
    rows: Callable[[str, int, int | None], RowsEnv] | None = None  # variant, rows, threads; goes with ``shape``
    meaning: Callable[[str], Meaning] | None = None  # what observations and actions mean, for exported policies


_FAMILIES: dict[str, Family] = {
    "roles": Family(
        "roles/<agents>",
        ("roles/4",),
        "one step, identical observations: play your own index",
        make_roles,
        meaning=roles_meaning,
    ),
    "groups": Family(
        "groups/<agents>-<groups>",
        ("groups/6-3",),
        "one step, all agents observe one sign: play the sign plus your group, which is hidden",
        make_groups,
        meaning=groups_meaning,
    ),
    "orchard": Family(
        "orchard/<rows>x<cols>-<pickers>p-<fruits>f[-any]",
        ("orchard/6x6-3p-2f",),
        "pick fruit of your own kind and spoil no other; nobody is told which kind is its own",
        make_orchard,
        meaning=orchard_meaning,
    ),
    "reach": Family(
        "reach/<agents>",
        ("reach/3",),
        "ten steps, identical observations, continuous actions: play your own point",
        shape=reach_spec,
        rows=make_reach,
        meaning=reach_meaning,
    ),
    "reach_jax": Family(
        "reach_jax/<agents>",
        ("reach_jax/3",),
        "the same game in JAX, compiled with the training program",
        make_reach_jax,
        meaning=reach_meaning,
    ),
    "lbf": Family(
        "lbf/<rows>x<cols>-<players>p-<foods>f[-coop][-s<sight>][-own][-v2][-t<steps>][-places<agents>]",
        ("lbf/10x10-3p-3f", "lbf/8x8-2p-2f-coop", "lbf/10x10-3p-3f-s2"),
        "Level-Based Foraging by the rules of lbforaging 2.0.0 (v3), in JAX",
        make_foraging,
        meaning=lbf_meaning,
    ),
    "lbforaging": Family(
        "lbforaging/<size>x<size>-<players>p-<foods>f[-coop][-s<sight>][-own]",
        ("lbforaging/10x10-3p-3f",),
        "the original package lbforaging, in Python: slow, and the judge of lbf",
        python=make_lbforaging,
        workers=True,
        meaning=lbf_meaning,
    ),
    "pettingzoo": Family(
        "pettingzoo/<module>[?horizon=<steps>][&reward=sum][&<name>=<value>]",
        (),  # any module with parallel_env will do, so none is special
        "any PettingZoo parallel environment, also your own module, with discrete or continuous actions",
        python=make_pettingzoo,
        workers=True,
    ),
    "skirmish": Family(
        "skirmish/<terran|protoss|zerg>_<agents>_vs_<enemies>[-published][-places<agents>]",
        tuple(f"skirmish/{race}_5_vs_5" for race in RACES),
        "SMACv2's battles without StarCraft: its units, observations and rewards, our dynamics, in JAX",
        make_battle,
        meaning=battle_meaning,
    ),
    "smacv2": Family(
        "smacv2/<terran|protoss|zerg>_<agents>_vs_<enemies>",
        tuple(f"smacv2/{race}_5_vs_5" for race in RACES),
        "the original package smacv2, for those who have StarCraft II; its sizes are known without",
        python=make_smacv2,
        shape=smacv2_spec,
        meaning=battle_meaning,
    ),
    "jaxmarl": Family(
        "jaxmarl/<id or smax-scenario>[?<name>=<value>]",
        (),  # building one imports JaxMARL, which is an extra
        "any JaxMARL environment with discrete actions, such as jaxmarl/smax-smacv2_5_units",
        make_jaxmarl,
    ),
    "mamujoco": Family(
        "mamujoco/<robot>-<agents>x<joints>[-damaged<agent>]",
        (*(f"mamujoco/{variant}" for variant in ROBOTS), "mamujoco/swimmer-10x2"),
        "one robot, joints split between agents, MuJoCo physics on threads; swimmers of up to 1024 agents",
        shape=mamujoco_spec,
        rows=make_mamujoco,
        meaning=robot_meaning,
    ),
}


def families() -> dict[str, Family]:
    """All families by name."""
    return dict(_FAMILIES)


def register(name: str, family: Family) -> None:
    """Add a family of tasks of your own, before the first of them is used."""
    check_name("task family", name)
    builders = [build for build in (family.make, family.python, family.rows) if build is not None]
    if len(builders) != 1:
        raise UserError(f"task family '{name}': it is built in {len(builders)} ways; give one of make, python and rows")
    if family.rows is not None and family.shape is None:
        raise UserError(f"task family '{name}': rows are built for sizes that are known before; add shape=")
    if family.workers:
        raise UserError(f"task family '{name}': other processes do not know it; leave out workers=True")
    held = _FAMILIES.get(name)
    refuse_taken_name("task family", name, held and builder(held), builders[0])
    _FAMILIES[name] = family
    _python_spec.cache_clear()


def builder(family: Family) -> Callable[..., object] | None:
    """The function that builds the environments of a family."""
    return family.make or family.python or family.rows


def family_of(task: str) -> Family:
    """The family of a task."""
    return _family(task)[0]


def make(task: str) -> JaxEnv:
    """Build the JAX environment that a task name stands for."""
    family, variant = _family(task)
    if family.make is None:
        describe(task)  # a misspelt variant is the more useful complaint
        raise UserError(f"task: '{task}' is played on the host and cannot be compiled; try lbf/10x10-3p-3f")
    return family.make(variant)


def make_python(task: str) -> PythonEnv:
    """Build the Python environment that a task name stands for."""
    family, variant = _family(task)
    if family.python is None:
        raise UserError(f"task: '{task}' does not live in Python; try lbforaging/10x10-3p-3f")
    return family.python(variant)


def rows_builder(task: str, patience: float = 0.0) -> Callable[[int, bool], RowsEnv]:
    """A function that builds rows of a task that is played on the host. It takes their number, and whether they need
    games of their own. Games in Python run in this process, or in others that must answer in ``patience`` seconds."""
    family, _ = _family(task)
    if family.python is None:
        return lambda number, own: make_rows(task, number)
    build = _game_builder(task, patience)
    games = Games(build)
    return lambda number, own: PythonRows(Games(build) if own else games, number)


def make_rows(task: str, number: int, threads: int | None = None, patience: float = 0.0) -> RowsEnv:
    """Build ``number`` rows of a task that is played on the host, with all cores unless told otherwise."""
    family, variant = _family(task)
    if family.rows is not None:
        return family.rows(variant, number, threads)
    if family.python is not None:
        return PythonRows(Games(_game_builder(task, patience)), number)
    describe(task)
    raise UserError(f"task: '{task}' is compiled and has no rows on the host; try mamujoco/halfcheetah-2x3")


def _game_builder(task: str, patience: float) -> Callable[[], PythonEnv]:
    family, _ = _family(task)
    if family.workers and patience > 0:
        return WorkerPool(task, describe(task), patience).make_env
    return lambda: make_python(task)


def is_compiled(task: str) -> bool:
    """Whether the environment is written in JAX and becomes part of the training program."""
    return _family(task)[0].make is not None


def describe(task: str) -> EnvSpec:
    """Sizes of a task; the package that plays it need not be installed."""
    family, variant = _family(task)
    if family.shape is not None:
        return family.shape(variant)
    return make(task).spec if family.make is not None else _python_spec(task)


def meaning(task: str) -> Meaning:
    """What the numbers of a task's observations and actions mean; empty where the environment does not say."""
    family, variant = _family(task)
    found = Meaning() if family.meaning is None else family.meaning(variant)
    spec = describe(task)
    fits = len(found.observation_names) in (0, spec.observation) and len(found.action_names) in (0, spec.actions)
    return found if fits else Meaning()


@functools.cache
def _python_spec(task: str) -> EnvSpec:
    """Building such an environment can take seconds, and its sizes are asked for often."""
    env = make_python(task)
    env.close()
    return env.spec


def _family(task: str) -> tuple[Family, str]:
    name, slash, variant = task.partition("/")
    if name not in _FAMILIES or not slash:
        examples = [example for entry in _FAMILIES.values() for example in entry.examples]
        family = difflib.get_close_matches(name, _FAMILIES, n=1)
        hint = f"did you mean '{family[0]}/{variant}'?" if slash and family else nearest(task, examples)
        raise UserError(f"task: there is no '{task}'; {hint}")
    return _FAMILIES[name], variant
