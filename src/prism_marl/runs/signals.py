"""Ctrl-C and SIGTERM as a question that the training loop answers when it is at a good place."""

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Stop:
    """Set by Ctrl-C or SIGTERM; looked at between pieces."""

    asked: bool = False


@contextlib.contextmanager
def stop_signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM ask for a clean stop; a second Ctrl-C insists."""
    stop = Stop()

    def ask(number, frame):
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us handles signals
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
