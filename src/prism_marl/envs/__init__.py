"""Environments: one file each; ``registry.make`` turns a task name into an environment."""

from prism_marl.envs.registry import describe, families, is_host, make, make_host

__all__ = ["describe", "families", "is_host", "make", "make_host"]
