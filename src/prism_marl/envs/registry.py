"""Task names to environments: ``family/variant``; every family says which variants it understands."""

from collections.abc import Callable
from dataclasses import dataclass

from prism_marl.envs.lbf import make_lbf
from prism_marl.envs.roles import make_roles
from prism_marl.errors import UserError, nearest
from prism_marl.types import Env


@dataclass(frozen=True)
class Family:
    """One line of ``prism-marl list``: how to write a task of this family, and who builds it."""

    make: Callable[[str], Env]  # receives what follows the slash
    pattern: str
    examples: tuple[str, ...]
    about: str


_FAMILIES: dict[str, Family] = {
    "roles": Family(
        make_roles, "roles/<agents>", ("roles/4",), "one step, identical observations, play your own index"
    ),
    "lbf": Family(
        make_lbf,
        "lbf/<rows>x<cols>-<players>p-<foods>f[-coop][-s<sight>]",
        ("lbf/10x10-3p-3f", "lbf/8x8-2p-2f-coop", "lbf/10x10-3p-3f-s2"),
        "Level-Based Foraging, lbforaging 2.0.0 (v3) rules, pure JAX",
    ),
}


def families() -> dict[str, Family]:
    """All families by name."""
    return dict(_FAMILIES)


def make(task: str) -> Env:
    """Build the environment that a task name stands for."""
    family, slash, variant = task.partition("/")
    if family not in _FAMILIES or not slash:
        examples = [name for entry in _FAMILIES.values() for name in entry.examples]
        raise UserError(f"task: there is no '{task}'; {nearest(task, examples)}")
    return _FAMILIES[family].make(variant)
