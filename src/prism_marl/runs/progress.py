"""How far a run has come, told through a small file so that another process can watch."""

import contextlib
import dataclasses
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from prism_marl.files import read_text
from prism_marl.monitor import Quiet

NAME = "progress.json"


@dataclass(frozen=True)
class Progress:
    """The last that a run told."""

    steps: int
    total: int
    rate: float  # steps of all seeds per second
    text: str
    pid: int  # of the process that trains
    time: float  # when it was told, in seconds since 1970


KINDS = {"steps": int, "total": int, "rate": float, "text": str, "pid": int, "time": float}


class ProgressFile(Quiet):
    """Writes where the run stands into its folder, at most twice a second. It is for people: losing it costs nothing,
    so it is neither synced nor allowed to disturb training."""

    def __init__(self, folder: Path, total: int):
        self.folder, self.total = folder, total
        self._last = 0.0
        self._text = ""

    def progress(self, steps: int, rate: float, text: str) -> None:
        now = time.monotonic()
        if now - self._last < 0.5 and text == self._text:
            return
        self._last, self._text = now, text
        path = self.folder / NAME
        temporary = path.with_name(f".{NAME}.{os.getpid()}.tmp")
        told = Progress(steps, self.total, rate, text, os.getpid(), time.time())
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(dataclasses.asdict(told)))
            temporary.replace(path)


def read_progress(folder: Path) -> Progress | None:
    """What a run told last, or None if it has not told anything."""
    try:
        told = json.loads(read_text(folder / NAME, folder))
        return Progress(**{name: kind(told[name]) for name, kind in KINDS.items()})
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
