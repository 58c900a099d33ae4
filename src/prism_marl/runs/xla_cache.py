"""Where JAX keeps the machine code that XLA makes of programs: in a ``Cache`` of ours.

JAX's own file cache takes whatever stands under a name: an entry of another program runs with the wrong arguments, and
a pipe is waited for without end. It also grows without bound. JAX has no public way to give it another cache, so this
sets the one that it would open itself; where a version of JAX has no such place, its own is used.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prism_marl.storage.cache import Cache, cache_limit

_STATE = ("_cache", "_cache_initialized", "_cache_checked", "_cache_used")


def install(folder: Path) -> bool:
    """Let JAX keep compiled programs here; False where this version of JAX cannot be told."""
    holder = _holder()
    if holder is None:
        return False
    holder._cache, holder._cache_initialized = _adapted(Cache(folder, cache_limit())), True
    return True


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Whatever cache JAX had opened before is there again afterwards."""
    holder = _holder()
    if holder is None:
        yield
        return
    before = {name: getattr(holder, name) for name in _STATE}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(holder, name, value)


def _holder() -> Any:
    try:
        from jax._src import compilation_cache
    except ImportError:
        return None
    return compilation_cache if all(hasattr(compilation_cache, name) for name in _STATE) else None


def _adapted(cache: Cache) -> Any:
    from jax._src.compilation_cache_interface import CacheInterface

    class Adapted(CacheInterface):
        _path = cache.folder

        def get(self, key: str) -> Any:
            return cache.read(key)

        def put(self, key: str, value: bytes) -> None:
            cache.write(key, value)

    return Adapted()
