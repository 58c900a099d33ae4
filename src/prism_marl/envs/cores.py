"""The cores of this machine that environments may use."""

import os


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(core_numbers())


def core_numbers() -> list[int]:
    """Their numbers, as the system counts them."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
