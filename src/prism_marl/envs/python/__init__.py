"""Environments written in Python: they hold their own state and use numpy arrays."""

from prism_marl.envs.base import Concurrent, PythonEnv

__all__ = ["Concurrent", "PythonEnv"]
