"""Ctrl-C and SIGTERM as a flag, which the training loop checks between its pieces; while programs are compiled, which
can take a minute, as an exception."""

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from prism_marl.errors import UserError


@dataclass
class Stop:
    """Whether a signal has asked the run to stop."""

    asked: bool = False
    at_once: bool = False  # whether a signal raises ``StopNow``

    @contextlib.contextmanager
    def while_compiling(self) -> Iterator[None]:
        """A signal ends this block at once."""
        if self.asked:
            raise StopNow
        self.at_once = True
        try:
            yield
        finally:
            self.at_once = False


class StopNow(KeyboardInterrupt):
    """A signal came while nothing was being computed."""


@contextlib.contextmanager
def stop_signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM ask for a clean stop; a second signal raises ``KeyboardInterrupt``."""
    stop = Stop()

    def ask(number, frame):
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True
        if stop.at_once:
            raise StopNow

    try:
        old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, which then has to handle signals
        yield stop
        return
    try:
        yield stop
    except StopNow:
        raise UserError("stopped while compiling; the same command continues from there", code=130) from None
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
