"""When a fused kernel may be used: decided before anything is compiled, by the device and by a small example."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax


def on_one_gpu() -> bool:
    """Whether programs are for a GPU and for one alone: a kernel cannot be split over devices."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    platform = jax.default_backend() if chosen is None else getattr(chosen, "platform", chosen)
    return platform in ("gpu", "cuda", "rocm") and jax.local_device_count() == 1


def is_right(example: Callable[..., bool], *given: Any) -> bool:
    """Whether this device compiles the kernels of an example and computes with them what their definition says.

    The example runs in a thread of its own: this is asked while a program is traced, which a thread does not inherit.
    ``jax.ensure_compile_time_eval`` would not do, because kernels cannot be traced inside it.
    """
    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(example, *given).result()
        except Exception:  # Pallas and its Triton backend change; whatever it is, plain JAX goes on
            return False
