"""Environments: one file each; ``registry.make`` turns a task name into an environment."""

from prism_marl.envs.registry import describe, families, make

__all__ = ["describe", "families", "make"]
