"""The progress of a run as a small file, which other processes can read."""

import contextlib
import dataclasses
import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from prism_marl.monitor import Quiet
from prism_marl.storage.files import parse_json, read_text, replacing

NAME = "progress.json"
SMALL = 2**16  # bytes; it is read twice a second for every experiment of a sweep


@dataclass(frozen=True)
class Progress:
    """The content of the file."""

    steps: int
    total: int
    rate: float  # steps of all seeds per second
    text: str
    pid: int  # of the process that trains
    time: float  # when this was written, in seconds since 1970


KINDS = {"steps": int, "total": int, "rate": float, "text": str, "pid": int, "time": float}


class ProgressFile(Quiet):
    """Writes the progress of a run into its folder, at most twice a second. Nothing depends on this file, so it is not
    synced to the disk, and errors are ignored."""

    def __init__(self, folder: Path, total: int):
        self.folder, self.total = folder, total
        self._last = 0.0
        self._text = ""

    def progress(self, steps: int, rate: float, text: str) -> None:
        now = time.monotonic()
        if now - self._last < 0.5 and text == self._text:
            return
        self._last, self._text = now, text
        content = Progress(steps, self.total, rate, text, os.getpid(), time.time())
        # A folder that was moved or deleted must not come into being again as a stump.
        with contextlib.suppress(OSError), replacing(self.folder / NAME, make=False) as temporary:
            temporary.write_text(json.dumps(dataclasses.asdict(content)))


def read_progress(folder: Path) -> Progress | None:
    """The progress of a run; None if there is no such file or it cannot be read."""
    try:
        content = parse_json(read_text(folder / NAME, folder, SMALL))
        found = Progress(**{name: kind(content[name]) for name, kind in KINDS.items()})
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return found if math.isfinite(found.rate) and math.isfinite(found.time) else None
