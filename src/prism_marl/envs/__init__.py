"""Environments: one file each; ``registry.make`` turns a task name into an environment."""

from prism_marl.envs.diversity import Diversity
from prism_marl.envs.meaning import Meaning
from prism_marl.envs.registry import (
    Family,
    builder,
    describe,
    diversity,
    families,
    family_of,
    is_compiled,
    make,
    make_python,
    make_rows,
    meaning,
    register,
    rows_builder,
)

__all__ = [
    "Diversity",
    "Family",
    "Meaning",
    "builder",
    "describe",
    "diversity",
    "families",
    "family_of",
    "is_compiled",
    "make",
    "make_python",
    "make_rows",
    "meaning",
    "register",
    "rows_builder",
]
