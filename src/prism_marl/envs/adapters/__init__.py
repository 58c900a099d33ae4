"""Environments that live in Python: they keep their own state and speak numpy."""

from prism_marl.envs.adapters.base import Concurrent, HostEnv, dropped, lost

__all__ = ["Concurrent", "HostEnv", "dropped", "lost"]
