"""A process that runs environments and is connected by a channel: how it is started, asked and killed.

It exits when its parent exits, also when the parent is killed.
"""

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

PARENT_CHECK = 2.0  # seconds between two checks that the parent is alive
TRIES = 3  # to start an episode
LOST_IN_A_ROW = 10  # lost episodes of one environment after which the run stops


Answer = tuple[Any, dict[str, np.ndarray]]


class EnvLostError(Exception):
    """The process of an environment died or does not answer, or the environment raised an exception."""


class WorkerProcess:
    """``python -m MODULE ARGUMENTS... READ WRITE``; the last two are the file descriptors of its channel."""

    def __init__(self, module: str, *arguments: str):
        to_parent, to_worker = os.pipe(), os.pipe()
        of_worker = (to_worker[0], to_parent[1])
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments, *map(str, of_worker)],
                pass_fds=of_worker,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches only the parent
                # the worker finds the same modules as its parent, and does not use the parent's accelerator
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"},
            )
        except OSError:  # no memory, or too many processes
            for descriptor in (*to_parent, *to_worker):
                os.close(descriptor)
            raise
        for descriptor in of_worker:
            os.close(descriptor)
        self.channel = Channel(to_parent[0], to_worker[1])

    def answer(self, seconds: float) -> Answer:
        """Returns the next message. Raises ``EnvLostError`` after ``seconds``, or if the process is dead."""
        try:
            return unpack(self.channel.receive(seconds))
        except TimeoutError:
            raise EnvLostError(f"no answer in {seconds:g} seconds") from None
        except (EOFError, OSError):
            raise EnvLostError("its process died") from None

    def kill(self) -> None:
        """Kill the process and all processes that it has started."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def parent_channel() -> tuple[list[str], Channel]:
    """In the worker process: its arguments and its end of the channel.

    A thread exits the process when the parent is gone, because an environment that hangs would never notice.
    """
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    *arguments, read, write = sys.argv[1:]
    return arguments, Channel(int(read), int(write))


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK)
    os._exit(1)
