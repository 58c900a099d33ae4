"""Environments that live in Python: they keep their own state and speak numpy."""

from prism_marl.envs.adapters.base import Concurrent, HostEnv

__all__ = ["Concurrent", "HostEnv"]
