"""Two code bases in turn: theirs, ours, theirs, ours, ... Each is a process of its own that compiles once, and then
measures whenever it is asked to. ``rivals.py`` and ``epymarl_rivals.py`` are made of this.

A ratio is their time / ours of the same turn: above 1, we are faster. Shown are medians, and the lowest and highest.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any


class Measured(dict[str, Any]):
    """Wall and CPU milliseconds of one iteration, and what was counted."""


def spent(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of wall-clock and of processors, those of processes that play for this one included."""
    wall, cpu = time.perf_counter(), time.process_time() + _children()
    work()
    return time.perf_counter() - wall, time.process_time() + _children() - cpu


def _children(process: str = "self") -> float:
    """Seconds of processors that all running descendants of a process have taken, as Linux counts them."""
    seconds = 0.0
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            threads = Path(f"/proc/{child}/task").glob("*/schedstat")
            seconds += sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9 + _children(child)
    return seconds


def per_iteration(wall: float, cpu: float, iterations: int, updates: int) -> Measured:
    return Measured(
        wall_ms=round(1000 * wall / iterations, 3),
        cpu_ms=round(1000 * cpu / iterations, 3),
        iterations=iterations,
        updates=updates,
    )


class Side:
    """One code base in a process of its own, which measures when it is asked to."""

    def __init__(self, name: str, python: Path, script: str, paths: Sequence[Path]):
        """``script`` gets the same words as this process, and which side it is. ``paths`` are searched for packages."""
        self.name = name
        here = (
            Path(__file__).resolve().parent
        )  # last: -P leaves it out, so that nothing of ours hides a module of theirs
        found = [*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")]), str(here)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(found), "WANDB_MODE": "disabled"}
        command = [str(python), "-P", str(Path(script).resolve()), *sys.argv[1:], "--side", name]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.about = self.answer()

    def measure(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return {"side": self.name} | self.answer()

    def answer(self) -> dict[str, Any]:
        """The next row; their own prints are passed over."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        sys.exit(f"the process of '{self.name}' ended; what it said is above")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(measure: Callable[[], Measured], about: Mapping[str, Any] | None = None) -> None:
    """Say what this side is, then answer every line of the input by a measurement."""
    print(json.dumps(about or {}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(measure()), flush=True)


def compare(sides: Sequence[Side], rounds: int) -> list[dict[str, Any]]:
    """Rows of all turns; closes the sides."""
    rows = []
    try:
        for turn in range(rounds):
            for side in sides:
                rows.append({"turn": turn} | side.measure())
                print(json.dumps(rows[-1]), flush=True)
    finally:
        for side in sides:
            side.close()
    return rows


def summary(rows: list[dict[str, Any]], ours: str = "ours") -> dict[str, Any]:
    """Ratios of the same turn."""
    found: dict[str, Any] = {}
    for name in ("wall_ms", "cpu_ms"):
        values = {side: [row[name] for row in rows if row["side"] == side] for side in ("theirs", ours)}
        ratios = [old / new for old, new in zip(values["theirs"], values[ours], strict=True)]
        found |= {f"theirs_{name}": round(median(values["theirs"]), 2), f"ours_{name}": round(median(values[ours]), 2)}
        found[f"{name[:-3]}_ratio"] = [round(value, 3) for value in (median(ratios), min(ratios), max(ratios))]
    return found


def with_their_network(trainer: Any) -> Any:
    """The trainer without the two hidden layers behind the GRU that only our agents have."""
    from prism_marl.learners.qmix import QMixLearner
    from prism_marl.networks.recurrent import RecurrentAgent

    class Shallow(RecurrentAgent):
        @property
        def chain(self) -> tuple[str, ...]:
            return ("fc1", "relu", "gru", "fc4")

        def _after(self, h: Any, identity: Any) -> Any:
            return self.fc4(h, identity)

    class ShallowLearner(QMixLearner):
        def build_agent(self, key: Any) -> Any:
            agent = super().build_agent(key)
            parts: Any = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
            return Shallow(**parts | {"fc2": None, "fc3": None})

    fields = {field.name: getattr(trainer.learner, field.name) for field in dataclasses.fields(QMixLearner)}
    return dataclasses.replace(trainer, learner=ShallowLearner(**fields))


def counts(state: Any) -> dict[str, int]:
    """What a state of ours has counted."""
    return {
        "iterations": int(state.clock.iteration),
        "updates": int(state.seeds.state.updates[0]),
        "steps": int(state.seeds.steps[0]),
    }
