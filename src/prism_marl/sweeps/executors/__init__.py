"""Executors run the experiments of a sweep. A new one is a class with ``run`` and a line in ``EXECUTORS``."""

import importlib
import inspect
from typing import Any

from prism_marl.errors import UserError, nearest
from prism_marl.sweeps.executors.base import Event, Executor, Job

# Names instead of imports, because Ray takes a second to load and may not be installed.
EXECUTORS: dict[str, str | type[Executor]] = {
    "local": "prism_marl.sweeps.executors.local:Local",
    "ray": "prism_marl.sweeps.executors.ray_cluster:Ray",
}

__all__ = ["EXECUTORS", "Event", "Executor", "Job", "make_executor"]


def make_executor(name: str, **settings: Any) -> Executor:
    """The executor of this name; settings that are None keep their defaults."""
    if name not in EXECUTORS:
        raise UserError(f"executor: there is no '{name}'; {nearest(name, EXECUTORS)}")
    found = EXECUTORS[name]
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    given = {key: value for key, value in settings.items() if value is not None}
    known = inspect.signature(found).parameters
    for key in given:
        if key not in known:
            raise UserError(f"--{key}: the executor '{name}' has no such setting; {nearest(key, known)}")
    return found(**given)
