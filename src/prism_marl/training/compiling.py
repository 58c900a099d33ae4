"""Compiling in a thread of its own, so that Ctrl-C is heard meanwhile.

Python runs a signal's handler in the main thread between two steps of its own, and XLA may work for a minute on one
program. So the main thread waits, which a handler can end, and the thread that compiles goes on alone.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jax

STACK = 2**26  # bytes; the compiler nests deeply, and some systems give threads little
BUSY = "compiling"  # name of the threads

Result = TypeVar("Result")


def compile_aside(lowered: Any, *, quick: bool = False) -> Any:
    """``lowered.compile()``, during which signals are heard; ``quick`` for programs that run for milliseconds."""
    return waited_for(functools.partial(lowered.compile, compiler_options=quick_options() if quick else None))


def quick_options() -> dict[str, Any] | None:
    """Options with which XLA takes a third of the time on a CPU, for a program that is slower in the end."""
    if jax.default_backend() != "cpu":
        return None
    return {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def waited_for(work: Callable[[], Result]) -> Result:
    """The result of some work that Python cannot interrupt. An exception of a signal handler ends the waiting."""
    if threading.current_thread() is not threading.main_thread():
        return work()  # no handler runs here
    found: list[Result] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    before = threading.stack_size(STACK)
    try:
        thread = threading.Thread(target=run, name=BUSY, daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    done.wait()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def exit_if_compiling(code: int) -> None:
    """End the process here if a program is still being compiled: an ordinary exit would wait for it."""
    if any(thread.name == BUSY and thread.is_alive() for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
