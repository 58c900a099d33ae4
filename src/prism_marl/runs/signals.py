"""Ctrl-C and SIGTERM as a flag, which the training loop checks between its pieces."""

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Stop:
    """Whether a signal has asked the run to stop."""

    asked: bool = False


@contextlib.contextmanager
def stop_signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM ask for a clean stop; a second signal raises ``KeyboardInterrupt``."""
    stop = Stop()

    def ask(number, frame):
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, which then has to handle signals
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
