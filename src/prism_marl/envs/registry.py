"""Task names to environments: ``family/variant``. A new environment is one file and one entry in ``_FAMILIES``."""

from collections.abc import Callable
from dataclasses import dataclass

from prism_marl.envs.lbf import make_lbf
from prism_marl.envs.roles import make_roles
from prism_marl.envs.shapes import mamujoco_shape, smacv2_shape
from prism_marl.errors import UserError, nearest
from prism_marl.types import Env, EnvSpec


@dataclass(frozen=True)
class Family:
    """One line of ``prism-marl list``: how to write a task of this family, and who builds it."""

    pattern: str
    examples: tuple[str, ...]
    about: str
    make: Callable[[str], Env] | None = None  # receives what follows the slash; None where only the sizes are known
    shape: Callable[[str], EnvSpec] | None = None


_FAMILIES: dict[str, Family] = {
    "roles": Family(
        "roles/<agents>", ("roles/4",), "one step, identical observations: play your own index", make_roles
    ),
    "lbf": Family(
        "lbf/<rows>x<cols>-<players>p-<foods>f[-coop][-s<sight>]",
        ("lbf/10x10-3p-3f", "lbf/8x8-2p-2f-coop", "lbf/10x10-3p-3f-s2"),
        "Level-Based Foraging by the rules of lbforaging 2.0.0 (v3), in JAX",
        make_lbf,
    ),
    "smacv2": Family(
        "smacv2/<race>_5_vs_5",
        ("smacv2/terran_5_vs_5", "smacv2/protoss_5_vs_5", "smacv2/zerg_5_vs_5"),
        "sizes only, for `footprint`",
        shape=smacv2_shape,
    ),
    "mamujoco": Family(
        "mamujoco/<robot>-<agents>x<joints>",
        ("mamujoco/ant-4x2", "mamujoco/walker2d-2x3", "mamujoco/swimmer-10x2"),
        "sizes only, for `footprint`",
        shape=mamujoco_shape,
    ),
}


def families() -> dict[str, Family]:
    """All families by name."""
    return dict(_FAMILIES)


def make(task: str) -> Env:
    """Build the environment that a task name stands for."""
    family, variant = _family(task)
    if family.make is None:
        describe(task)  # a misspelt variant is the more useful complaint
        raise UserError(f"task: '{task}' can be measured with `footprint` but not played yet; try lbf/10x10-3p-3f")
    return family.make(variant)


def describe(task: str) -> EnvSpec:
    """Sizes of a task, also where the environment itself is not there."""
    family, variant = _family(task)
    if family.shape is not None:
        return family.shape(variant)
    return make(task).spec


def _family(task: str) -> tuple[Family, str]:
    name, slash, variant = task.partition("/")
    if name not in _FAMILIES or not slash:
        examples = [example for entry in _FAMILIES.values() for example in entry.examples]
        raise UserError(f"task: there is no '{task}'; {nearest(task, examples)}")
    return _FAMILIES[name], variant
