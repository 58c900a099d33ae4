"""Environments that live in Python: they keep their own state and speak numpy."""

from prism_marl.envs.base import Concurrent, PythonEnv, dropped, lost

__all__ = ["Concurrent", "PythonEnv", "dropped", "lost"]
