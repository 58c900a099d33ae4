"""Shows a sweep while it runs: a live table in a terminal, lines of text elsewhere.

It reads the run folders (``progress.json`` and evaluation rows), so it works for every executor whose workers write to
a file system that this process can read.
"""

import functools
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from prism_marl.experiment import config
from prism_marl.experiment.experiment import Experiment
from prism_marl.runs.progress import read_progress
from prism_marl.storage.files import StrangeFileError, check_plain
from prism_marl.sweeps.executors import Event
from prism_marl.sweeps.grid import folder_of, is_finished

EVERY = 60.0  # seconds between lines about running experiments, if there is no terminal
LONGEST = 1e9  # seconds that are shown
TAIL = 65536  # bytes that are read from the end of the row file
STYLES = {"running": "cyan", "finished": "green", "skipped": "green", "failed": "red", "waiting": "dim"}
ORDER = ("running", "failed", "waiting", "finished", "skipped")  # of the rows; the last ones may not fit


class SweepView:
    """Shows a sweep; give ``on_event`` to ``run_sweep``. ``final`` reads the return of a finished run."""

    def __init__(
        self,
        experiments: Iterable[Experiment],
        runs_dir: Path,
        console: Console | None = None,
        final: Callable[[Path], float | None] | None = None,
    ):
        self.names = labels(experiments)
        self.folders = {experiment: folder_of(experiment, runs_dir) for experiment in self.names}
        self.states = {e: "skipped" if is_finished(folder) else "waiting" for e, folder in self.folders.items()}
        self.console = console or Console(stderr=True, highlight=False, markup=False)
        self._final = functools.cache(final or last_return)
        self._live: Live | None = None
        self._closed = threading.Event()

    def __enter__(self) -> "SweepView":
        if self.console.is_terminal:
            self._live = Live(get_renderable=self.table, console=self.console, refresh_per_second=2)
            self._live.start()
        else:
            threading.Thread(target=self._print_at_intervals, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self._live is not None:
            self._live.stop()

    def on_event(self, event: Event) -> None:
        """An experiment has started or ended."""
        experiment = event.job.experiment
        self.states[experiment] = event.state
        if self._live is None:
            text = event.error or self._summary(experiment) if event.state in ("finished", "failed") else ""
            self._line(f"{event.state} {self.names[experiment]}{': ' if text else ''}{text}")

    def table(self) -> Table:
        """As many experiments as fit, running ones first, and the number of experiments in each state."""
        shown = sorted(self.names, key=lambda experiment: ORDER.index(self.states[experiment]))
        height = max(3, self.console.height - 5)
        columns = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=self._counts(), caption_justify="left")
        for name in ("experiment", "state"):
            columns.add_column(name, overflow="fold")
        for name in ("step", "return", "steps/s", "time left"):
            columns.add_column(name, justify="right", no_wrap=True)
        for experiment in shown[:height]:
            state = self.states[experiment]
            cells = [Text(cell) for cell in self._cells(experiment)]
            columns.add_row(Text(self.names[experiment]), Text(state, STYLES[state]), *cells)
        return columns

    def _cells(self, experiment: Experiment) -> tuple[str, str, str, str]:
        folder, state, total = self.folders[experiment], self.states[experiment], experiment.run.steps
        over = state in ("finished", "skipped")
        value = self._final(folder) if over else last_return(folder)
        shown = "" if value is None else f"{value:.3f}"
        if over:
            return f"{total:,}", shown, "", ""
        progress = read_progress(folder)
        if progress is None:
            return "", shown, "", ""
        step = f"{min(progress.steps, total):,} / {total:,}"
        if state != "running" or progress.rate <= 0:
            return step, shown, "", ""
        left = max(0, total - progress.steps) * experiment.run.seeds / progress.rate
        return step, shown, f"{progress.rate:,.0f}", duration(left)

    def _summary(self, experiment: Experiment) -> str:
        names = ("step", "return", "steps/s", "left")
        return ", ".join(f"{n} {cell}" for n, cell in zip(names, self._cells(experiment), strict=True) if cell)

    def _counts(self) -> str:
        counts = Counter(self.states.values())
        return ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])

    def _print_at_intervals(self) -> None:
        while not self._closed.wait(EVERY):
            for experiment in [e for e, state in self.states.items() if state == "running"]:
                self._line(f"running {self.names[experiment]}: {self._summary(experiment)}")

    def _line(self, text: str) -> None:
        self.console.print(f"{time.strftime('%H:%M:%S')} {text}", soft_wrap=True, markup=False, highlight=False)


def labels(experiments: Iterable[Experiment]) -> dict[Experiment, str]:
    """A short name for each: task, method, and the fields in which it differs from others with that task and method."""
    experiments = list(dict.fromkeys(experiments))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for experiment in experiments:
        groups.setdefault(_kind(experiment), []).append(_fields(experiment))
    names = {}
    for experiment in experiments:
        group, own = groups[_kind(experiment)], _fields(experiment)
        differing = [path for path in own if len({str(fields.get(path)) for fields in group}) > 1]
        names[experiment] = " ".join([*_kind(experiment), *(f"{path}={own[path]}" for path in differing)])
    return names


def last_return(folder: Path) -> float | None:
    """Mean return over seeds at the last evaluation; None if no row can be read."""
    try:
        with check_plain(folder / "eval.jsonl", folder).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            lines = file.read().splitlines()
    except (OSError, StrangeFileError):
        return None
    latest: dict[int, list[float]] = {}
    for line in lines:
        try:
            row = json.loads(line)
            value = float(row["return"])
            if not math.isfinite(value):
                continue
            latest.setdefault(int(row["evaluation"]), []).append(value)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
    values = latest[max(latest)] if latest else []
    return sum(values) / len(values) if values else None


def duration(seconds: float) -> str:
    """Hours and minutes, minutes and seconds, or seconds; nothing where it would take longer than anybody waits."""
    if not seconds < LONGEST:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _kind(experiment: Experiment) -> tuple[str, str]:
    return experiment.task, experiment.sharing.method


def _fields(experiment: Experiment) -> dict[str, Any]:
    parts = {name: part for name, part in config.to_dict(experiment).items() if isinstance(part, dict)}
    return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}
