"""Environments: one file each; ``registry.make`` turns a task name into an environment."""

from prism_marl.envs.registry import (
    describe,
    families,
    is_compiled,
    make,
    make_python,
    make_rows,
    register,
    rows_builder,
)

__all__ = ["describe", "families", "is_compiled", "make", "make_python", "make_rows", "register", "rows_builder"]
