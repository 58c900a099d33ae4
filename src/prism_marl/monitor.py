"""What a run reports while it runs: progress, notes, new rows. The row files in the run folder are the record."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

WIDE = 120  # columns that a progress bar needs to fit into one line


class Monitor(Protocol):
    """Receives the reports of a run."""

    def progress(self, steps: int, rate: float, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def recorded(self, folder: Path) -> None:
        """The row files of the run folder have new rows; a continued run calls this at its start, too."""
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
    """Passes everything on to several monitors."""

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
    """A progress bar with steps/s, return, loss and time left; it appears with the first report. In a narrow terminal
    the title is printed on a line of its own, so that no number is cut off."""

    def __init__(self, total: int, title: str, console: Console | None = None):
        self.console = console or Console(stderr=True)
        wide = self.console.width >= WIDE
        self._heading = "" if wide else title
        self.bar = Progress(
            *[TextColumn("{task.description}", markup=False)][:wide],
            BarColumn(bar_width=24 if wide else 10),
            TextColumn("{task.percentage:>3.0f}%"),
            _Rate(),
            TextColumn("{task.fields[text]}", markup=False),
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
        self.bar.console.print(text, highlight=False, markup=False)  # a path may look like markup
