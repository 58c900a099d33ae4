"""How far a run has come, told through a small file so that another process can watch."""

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from prism_marl.sinks import Quiet

NAME = "progress.json"


@dataclass(frozen=True)
class Progress:
    """The last that a run told."""

    steps: int
    total: int
    rate: float  # steps of all seeds per second
    text: str
    age: float  # seconds since it was told


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
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps({"steps": steps, "total": self.total, "rate": rate, "text": text}))
            temporary.replace(path)


def read_progress(folder: Path) -> Progress | None:
    """What a run told last, or None if it has not told anything."""
    path = folder / NAME
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        age = max(0.0, time.time() - path.stat().st_mtime)
        return Progress(int(told["steps"]), int(told["total"]), float(told["rate"]), str(told["text"]), age)
    except (OSError, ValueError, KeyError, TypeError):
        return None
