"""The machine: which versions and device computed a result, its GPUs, its free memory, and JAX's settings."""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import equinox
import jax
import numpy
import optax

from prism_marl import __version__
from prism_marl.envs.cores import usable_cores
from prism_marl.errors import UserError
from prism_marl.runs import xla_cache
from prism_marl.sharing.products import on_matrix_units


def describe_machine() -> dict[str, Any]:
    """Versions, device and commit, written into every run folder."""
    device = jax.devices()[0]
    return {
        "prism_marl": __version__,
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "equinox": equinox.__version__,
        "optax": optax.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device.device_kind,
        "platform": device.platform,
        "devices": jax.device_count(),
        "cores": usable_cores(),
        "deterministic": DETERMINISTIC in os.environ.get("XLA_FLAGS", ""),
        "products": precision(),
        "flags": numeric_flags(),
        "commit": _commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def numeric_flags() -> dict[str, Any]:
    """Settings of JAX and XLA that can change numbers, as they are now."""
    flags = {name: jax.config.values.get(name) for name in (*PINNED, *NUMERIC)}
    return {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "").strip()} | flags


def precision() -> str:
    """The type to which the inputs of matrix products are rounded."""
    return "tf32" if on_matrix_units() else "float32"


def visible_gpus() -> list[str]:
    """NVIDIA GPUs that a new process could train on, named as in CUDA_VISIBLE_DEVICES. Does not start JAX, which would
    allocate their memory."""
    platforms = os.environ.get("JAX_PLATFORMS", "").lower()
    if platforms and "cuda" not in platforms and "gpu" not in platforms:
        return []
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip() not in ("", "-1")]
    try:
        found = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number, _ in enumerate(found.stdout.splitlines())]


def free_bytes() -> int | None:
    """Free memory of the device that will train; None if the system does not report it."""
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    return None


@contextlib.contextmanager
def full_memory_explained() -> Iterator[None]:
    """Turn a failed allocation, while compiling or running, into a ``UserError`` that says what to lower."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        device = jax.devices()[0].device_kind
        raise UserError(
            f"memory of the device ({device}) ran out; the last checkpoint is kept; "
            "lower run.seeds, run.envs, learner.batch or learner.buffer",
            code=1,
        ) from None


DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
PINNED = {  # settings that say what a program means; a variable such as JAX_DEFAULT_PRNG_IMPL does not change a run
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_enable_x64": False,
    "jax_numpy_dtype_promotion": "standard",
}
NUMERIC = ("jax_disable_most_optimizations", "jax_disable_jit")  # those that only say how it is computed


def configure_jax(*, deterministic: bool = False, tf32: bool = False) -> Path | None:
    """Set the precision of products and the folder of compiled programs; returns that folder, or None if there is none.

    Products are full float32 on every device, as in the reference implementations; ``tf32`` lets a GPU round their
    inputs to TF32. Compiled programs are stored in ``PRISM_MARL_CACHE``, or not at all if that variable is empty.
    ``deterministic`` makes a GPU add in the same order every time, as a CPU always does. Call this before the first use
    of a device, because XLA reads its flags then.
    """
    if deterministic:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DETERMINISTIC}".strip()
    jax.config.update("jax_default_matmul_precision", _precision_setting(tf32=tf32))
    for name, value in PINNED.items():
        jax.config.update(name, value)
    named = os.environ.get("PRISM_MARL_CACHE", _own_cache())
    if not named:
        return None
    jax.config.update("jax_compilation_cache_dir", named)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    folder = cache_folder()
    if folder is not None:
        xla_cache.install(folder)
    return folder


def cache_folder() -> Path | None:
    """Where programs are kept between starts; None if they are not, or in a cloud bucket, which only JAX can use."""
    named = os.environ.get("PRISM_MARL_CACHE", _own_cache())
    return None if not named or "://" in named else Path(named)


def _precision_setting(*, tf32: bool) -> str:
    return "tensorfloat32" if tf32 else "highest"


@contextlib.contextmanager
def jax_settings(*, deterministic: bool = False, tf32: bool = False) -> Iterator[Path | None]:
    """``configure_jax`` for a while: whoever called from Python has its own precision of products back afterwards."""
    names = (
        *("jax_default_matmul_precision", "jax_compilation_cache_dir"),
        "jax_persistent_cache_min_compile_time_secs",
        *PINNED,
    )
    before = {name: jax.config.values[name] for name in names}  # not what a caller's ``with`` says for now
    with xla_cache.restored():
        try:
            cache = configure_jax(deterministic=deterministic, tf32=tf32)
            with jax.default_matmul_precision(_precision_setting(tf32=tf32)):  # or a caller's ``with`` would win
                yield cache
        finally:
            for name, value in before.items():
                jax.config.update(name, value)


def _own_cache() -> str:
    """The default folder of compiled programs; empty for a user without a home folder, as in some containers."""
    try:
        return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prism-marl" / "xla")
    except RuntimeError:
        return ""


def _commit() -> str | None:
    """The commit of this source tree; None without git, or where no git project holds this very file: a package that is
    installed below somebody's project is not of that project's commit."""
    here = Path(__file__)
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    return _git(here.parent, "describe", "--always", "--dirty") or None


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "-C", str(folder), *words]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
