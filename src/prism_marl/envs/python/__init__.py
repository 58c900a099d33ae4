"""Environments written in Python: they hold their own state and use numpy arrays."""

from prism_marl.envs.base import Concurrent, PythonEnv, dropped, lost

__all__ = ["Concurrent", "PythonEnv", "dropped", "lost"]
