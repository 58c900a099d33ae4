"""Task names to environments: ``family/variant``. A new environment is one file and one entry in ``families``."""

import difflib
import functools
from collections.abc import Callable

from prism_marl.envs.base import JaxEnv, PythonEnv, RowsEnv
from prism_marl.envs.diversity import Diversity
from prism_marl.envs.families import FAMILIES
from prism_marl.envs.family import Family
from prism_marl.envs.meaning import Meaning
from prism_marl.envs.python.rows import Games, PythonRows
from prism_marl.envs.workers.pool import WorkerPool
from prism_marl.errors import UserError, nearest
from prism_marl.registration import check_name, refuse_taken_name
from prism_marl.types import EnvSpec

_FAMILIES = dict(FAMILIES)  # and those of users


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


def diversity(task: str) -> Diversity | None:
    """How much a team gains when its agents may differ; None where nobody has said."""
    family, variant = _family(task)
    describe(task)  # a misspelt variant is the first thing to complain about
    return None if family.diversity is None else family.diversity(variant)


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
