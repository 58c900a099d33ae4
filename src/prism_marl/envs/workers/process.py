"""A process that plays games at the other end of a channel: started, asked, ended, and gone when its parent is."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from prism_marl.envs.workers.channel import Channel, unpack

CHECK = 2.0  # seconds between two looks at whether the parent is still there
TRIES = 3  # to start an episode
LOST_IN_A_ROW = 10  # episodes of one game; then nobody believes in the next


Answer = tuple[Any, dict[str, np.ndarray]]


class GameLostError(Exception):
    """The game is gone or does not answer."""


class Child:
    """``python -m MODULE WORDS... READING WRITING``, the last two being open pipes."""

    def __init__(self, module: str, *words: str):
        inward, outward = os.pipe(), os.pipe()
        theirs = (outward[0], inward[1])
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *words, *map(str, theirs)],
                pass_fds=theirs,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us alone
                # it plays what we would play, and leaves our accelerator alone
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"},
            )
        except OSError:  # no memory, or too many processes
            for end in (*inward, *outward):
                os.close(end)
            raise
        for end in theirs:
            os.close(end)
        self.channel = Channel(inward[0], outward[1])

    def answer(self, seconds: float) -> Answer:
        """The next message; ``GameLostError`` if it does not come in time, or nobody is there to send it."""
        try:
            return unpack(self.channel.receive(seconds))
        except TimeoutError:
            raise GameLostError(f"no answer in {seconds:g} seconds") from None
        except (EOFError, OSError):
            raise GameLostError("its process died") from None

    def end(self) -> None:
        """End the process, and all that it has started."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def parent_channel() -> tuple[list[str], Channel]:
    """The words that such a process was started with, and its end of the channel. A game that hangs would outlive
    whoever started it, so the process leaves with its parent."""
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    *words, reading, writing = sys.argv[1:]
    return words, Channel(int(reading), int(writing))


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(CHECK)
    os._exit(1)
