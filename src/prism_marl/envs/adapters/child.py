"""A process of our own at the other end of a channel: started, ended, and gone when its parent is."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

from prism_marl.envs.adapters.channel import Channel

CHECK = 2.0  # seconds between two looks at whether the parent is still there


class Child:
    """``python -m MODULE WORDS... READING WRITING``, the last two being open pipes."""

    def __init__(self, module: str, *words: str):
        inward, outward = os.pipe(), os.pipe()
        theirs = (outward[0], inward[1])
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *words, *map(str, theirs)],
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us alone
            # it plays what we would play, and leaves our accelerator alone
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"},
        )
        for end in theirs:
            os.close(end)
        self.channel = Channel(inward[0], outward[1])

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
