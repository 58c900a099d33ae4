"""Lowered programs kept between starts: the second start of an experiment does not trace them again.

JAX keeps what XLA makes of a program, but finds it only after Python has traced and lowered the program, which is most
of what a second start takes. Here the lowered program itself is kept, under a digest of all that decides it. The first
start already runs what it keeps, so that both run the same program. Arrays cross as one flat list of leaves, because a
file of ``jax.export`` knows nothing of our modules.
"""

import hashlib
import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax import export

import prism_marl
from prism_marl.collect.compiled import CompiledCollector
from prism_marl.experiment import plugins
from prism_marl.storage.cache import Cache, cache_limit
from prism_marl.training.compiling import compile_aside
from prism_marl.training.trainer import Trainer

TRACING = ("jax", "jaxlib", "equinox", "optax", "numpy")  # packages whose code is part of what is traced
KERNELS = [export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")]  # read back by the same JAX alone
FOREIGN = ("prism_marl.envs.python.", "prism_marl.envs.jaxmarl")  # ours, but what they play is not


@dataclass(frozen=True)
class ExportCache:
    """The kept programs of one experiment."""

    cache: Cache
    origin: str  # digest of all that decides what tracing gives, but for shapes

    def program(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        *,
        donate: bool,
        template: Any = None,
        quick: bool = False,
    ) -> Callable[..., Any] | None:
        """A function, compiled for arguments of these shapes; the first is consumed if ``donate`` says so. ``template``
        has the structure of its result, where that is more than dicts and tuples of arrays. None where JAX cannot
        export it, for example because it calls back into Python."""
        leaves, structure = jax.tree.flatten(tuple(arguments))
        returned = None if template is None else jax.tree.structure(template)
        shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]

        def flat(*leaves: Any) -> Any:
            result = function(*jax.tree.unflatten(structure, leaves))
            return result if returned is None else jax.tree.leaves(result)

        donated = range(len(jax.tree.leaves(arguments[0]))) if donate else ()
        try:
            kept = self._kept(name, flat, shapes)
            lowered = jax.jit(_named(name, kept.call), donate_argnums=tuple(donated)).lower(*shapes)
        except Exception:  # whatever it is, the ordinary way goes on or says what is wrong
            return None
        compiled = compile_aside(lowered, quick=quick)

        def call(*arguments: Any) -> Any:
            result = compiled(*jax.tree.leaves(arguments))
            return result if returned is None else jax.tree.unflatten(returned, result)

        return call

    def _kept(self, name: str, flat: Callable[..., Any], shapes: Sequence[jax.ShapeDtypeStruct]) -> export.Exported:
        key = f"{name}-{_digest([self.origin, name, *(f'{leaf.shape} {leaf.dtype}' for leaf in shapes)])}"
        found = self._read(key)
        if found is None:
            found = export.export(jax.jit(flat), disabled_checks=KERNELS)(*shapes)
            self.cache.write(key, bytes(found.serialize()))
        return found

    def _read(self, key: str) -> export.Exported | None:
        """None where there is no such file, or one that JAX cannot read."""
        program = self.cache.read(key)
        try:
            return None if program is None else export.deserialize(bytearray(program))
        except Exception:  # the file is then made anew
            return None


def open_export_cache(cache: Path | None, trainer: Trainer) -> ExportCache | None:
    """The kept programs of an experiment; None without a cache, or where code takes part that the digest misses."""
    parts = _parts(trainer)
    modules = [type(part).__module__ for part in parts]
    known = all(module.startswith("prism_marl.") and not module.startswith(FOREIGN) for module in modules)
    if cache is None or not known or plugins.any_loaded():
        return None
    return ExportCache(
        Cache(cache / "lowered", cache_limit()), _origin([trainer.experiment.to_json(), *map(repr, parts)])
    )


def _parts(trainer: Trainer) -> list[Any]:
    """What is traced: settings that are ours all the way down, so that their text tells them apart."""
    parts = [trainer.experiment.sharing, trainer.experiment.learner, trainer.learner]
    collector = trainer.collector
    return [*parts, collector.env] if isinstance(collector, CompiledCollector) else parts  # else only sizes are traced


def _origin(settings: Sequence[str]) -> str:
    device = jax.devices()[0]
    source = Path(prism_marl.__file__).parent
    files = [(path.relative_to(source).as_posix(), path.read_bytes()) for path in sorted(source.rglob("*.py"))]
    return _digest(
        [
            *settings,
            *(f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in files),
            *(f"{package} {importlib.metadata.version(package)}" for package in TRACING),
            platform.python_version(),
            f"{device.platform} {device.device_kind} {device.client.platform_version}",
            *(f"{flag} {getattr(jax.config, flag, value)}" for flag, value in sorted(jax.config.values.items())),
        ]
    )


def _named(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Profiles and XLA's cache show programs by this name."""

    def program(*leaves: Any) -> Any:
        return call(*leaves)

    program.__name__ = name
    return program


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()
