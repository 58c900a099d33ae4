"""Where rows go. JSON lines in the run folder are the record; the progress bar is for people."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from prism_marl.errors import UserError

BOOKKEEPING = ("evaluation", "seed", "step")  # keys of a row that are not measurements
WIDE = 120  # columns that a progress bar needs to have everything in one line


class Rows:
    """An append-only file of JSON lines that knows what it holds, so that a resumed run can tell whether rows were lost
    and cut those that were not saved."""

    def __init__(self, path: Path):
        self.path = path
        self._size, self._hash = 0, hashlib.blake2b(digest_size=16)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Write rows and make sure they are on the disk."""
        text = "".join(json.dumps({k: _finite(v) for k, v in row.items()}) + "\n" for row in rows).encode()
        with self._written(), self.path.open("ab") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(text)
        self._hash.update(text)

    def seal(self) -> list[Any]:
        """What a checkpoint notes about the rows up to now: their bytes and a digest of them."""
        return [self._size, self._hash.hexdigest()]

    def complaint(self, seal: list[Any]) -> str | None:
        """Why the file does not begin with the rows that were sealed, if it does not."""
        size, digest = seal
        found = self._read(size)
        if len(found) < size:
            return f"{self.path.name} has lost rows: {len(found)} of {size} bytes are left"
        if hashlib.blake2b(found, digest_size=16).hexdigest() != digest:
            return f"{self.path.name} does not hold the rows that were written"
        return None

    def cut(self, size: int) -> None:
        """Forget everything after the first ``size`` bytes: rows written after the checkpoint come again."""
        if self.path.exists():
            with self._written():
                os.truncate(self.path, size)
        self._size, self._hash = size, hashlib.blake2b(self._read(size), digest_size=16)

    def _read(self, size: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                return file.read(size)
        except OSError:
            return b""

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror}); free some space", code=1) from None


def _finite(value: Any) -> Any:
    """JSON has no NaN; a row says null instead."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Monitor(Protocol):
    """Something that shows how a run is going."""

    def progress(self, steps: int, rate: float, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def recorded(self, folder: Path) -> None:
        """The row files of the run folder have grown; the first call tells what a continued run begins with."""
        ...


class Quiet:
    """Shows nothing."""

    def recorded(self, folder: Path) -> None:
        del folder

    def progress(self, steps: int, rate: float, text: str) -> None:
        del steps, rate, text

    def note(self, text: str) -> None:
        del text


class Several(Quiet):
    """Tells several monitors."""

    def __init__(self, monitors: Sequence[Monitor]):
        self.monitors = monitors

    def progress(self, steps: int, rate: float, text: str) -> None:
        for monitor in self.monitors:
            monitor.progress(steps, rate, text)

    def note(self, text: str) -> None:
        for monitor in self.monitors:
            monitor.note(text)

    def recorded(self, folder: Path) -> None:
        for monitor in self.monitors:
            monitor.recorded(folder)


class _Rate(ProgressColumn):
    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        return Text(f"{task.fields.get('rate', 0.0):,.0f} steps/s", style="progress.data.speed")


class ProgressBar(Quiet):
    """A progress bar with steps/s, return, loss and time left. It appears with the first thing there is to show. In a
    narrow terminal the title has a line of its own: numbers that are cut off are worth nothing."""

    def __init__(self, total: int, title: str, console: Console | None = None):
        self.console = console or Console(stderr=True)
        wide = self.console.width >= WIDE
        self._heading = "" if wide else title
        self.bar = Progress(
            *[TextColumn("{task.description}")][:wide],
            BarColumn(bar_width=24 if wide else 10),
            TextColumn("{task.percentage:>3.0f}%"),
            _Rate(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            refresh_per_second=4,
        )
        self.task = self.bar.add_task(title, total=total, text="", rate=0.0)

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar.live.is_started:
            self.bar.stop()

    def progress(self, steps: int, rate: float, text: str) -> None:
        if self._heading:
            self.note(self._heading)
            self._heading = ""
        self.bar.start()
        self.bar.update(self.task, completed=steps, text=text, rate=rate)

    def note(self, text: str) -> None:
        self.bar.console.print(text, highlight=False)
