"""Environments: one file each; ``registry.make`` turns a task name into an environment."""

from prism_marl.envs.registry import describe, families, host_builder, is_host, is_vector, make, make_host, make_vector

__all__ = ["describe", "families", "host_builder", "is_host", "is_vector", "make", "make_host", "make_vector"]
