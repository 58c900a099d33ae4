"""Kill training again and again, continue it, and compare every byte with a run that was left alone.

    python benchmarks/soak_kills.py --kills 50 --out soak.json

Kills are aimed: the harness watches the run folder and the log from outside, stops the process with SIGSTOP when it
sees what it waits for, looks again, and only then sends SIGKILL, so that an evaluation or a checkpoint that it reports
is one that was hit. Half of those aimed at compiling or at a chunk come up to half a second later, without a second
look, to fall on other places; those called "anywhere" come at a random time after the start. A run that ends before its
turn is compared at once and another begins. Reports are killed while the page is being written.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import safetensors.numpy

from prism_marl.runs import checkpoint

PATIENCE = 900  # seconds until a life counts as hung
SMALL = {"network.width": "8", "run.envs": "2", "run.eval_episodes": "4", "run.seeds": "2", "run.seed": "5"}
EPISODES = SMALL | {
    "learner.embed": "4",
    "learner.hypernet": "4",
    "learner.batch": "4",
    "learner.buffer": "64",
    "learner.target_interval": "5",
}
TRANSITIONS = SMALL | {
    "learner.critic_width": "8",
    "learner.n_critics": "2",
    "learner.batch": "8",
    "learner.buffer": "400",
    "learner.warmup": "20",
    "learner.train_interval": "5",
    "learner.updates": "5",
    "learner.n_step": "3",
}


@dataclass(frozen=True)
class Family:
    """A tiny experiment of one kind."""

    task: str
    method: str
    fields: dict[str, str]

    def command(self, folder: Path) -> list[str]:
        words = [word for path, value in self.fields.items() for word in (f"--{path}", value)]
        program = [sys.executable, "-m", "prism_marl.cli", "train", self.task, "--sharing", self.method]
        return [*program, "--deterministic", *words, "--out", str(folder)]


FAMILIES = {
    "qmix-jax": Family(
        "lbf/4x4-2p-1f",
        "prism",
        EPISODES | {"run.steps": "6000", "run.eval_every": "200", "sharing.reset_interval": "700"},
    ),
    "qmix-python": Family(
        "lbforaging/5x5-2p-1f",
        "prism",
        EPISODES | {"run.steps": "3000", "run.eval_every": "150", "run.save_every": "2"},
    ),
    "matd3-batches": Family(
        "reach/3",
        "kaleidoscope",
        TRANSITIONS
        | {"run.steps": "3000", "run.eval_every": "100"}
        | {"sharing.reset_interval": "60", "sharing.critic_reset_interval": "50", "sharing.threshold_shift": "0"},
    ),
    "matd3-physics": Family(
        "mamujoco/hopper-3x1",
        "prism",
        TRANSITIONS | {"run.steps": "2000", "run.eval_every": "100", "run.save_every": "3"},
    ),
}
PHASES = ("compile", "chunk", "evaluation", "checkpoint", "anywhere")


class BrokenPromiseError(Exception):
    """A promise was not kept; the text says which."""


@dataclass
class Life:
    """One process, seen from outside."""

    folder: Path
    process: subprocess.Popen[bytes]
    log: Path
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.begun = lines(self.folder / "eval.jsonl")

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def trained(self) -> int:
        """Rows of evaluations that this life has added to those that it found."""
        return lines(self.folder / "eval.jsonl") - self.begun

    def in_phase(self, phase: str, ahead: int) -> bool:
        """Whether the process is, right now and as far as files tell, inside a phase."""
        if phase == "compile":
            return "compiling" in self.said() and self.trained() <= 2
        if self.trained() < 2 * ahead:  # two seeds write two rows
            return False
        if phase == "checkpoint":
            return any(self.folder.glob("checkpoints/.*.tmp"))
        evaluating = self.evaluating()
        return evaluating if phase == "evaluation" else not evaluating and not any(self.folder.rglob(".*.tmp"))

    def evaluating(self) -> bool:
        """The row of times is written just before an evaluation, the evaluation's own row just after it."""
        timed, rows = (last(self.folder / name) for name in ("timing.jsonl", "eval.jsonl"))
        return timed > rows


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def last(path: Path) -> int:
    """The number of the evaluation in the last whole row."""
    whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return json.loads(whole[-1])["evaluation"] if whole else 0


@contextmanager
def alive(command: list[str], folder: Path, log: Path) -> Iterator[Life]:
    """A process that is gone afterwards, whatever happens."""
    with log.open("wb") as file:
        life = Life(folder, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT), log)
        try:
            yield life
        finally:
            life.process.kill()
            life.process.wait()


def strike(
    life: Life, ready: Callable[[], bool], pause: float = 0.0, meanwhile: Callable[[], object] = lambda: None
) -> bool:
    """Wait for a moment, stop, do something meanwhile, and kill; False if the process came to its own end before."""
    while life.process.poll() is None:
        if time.monotonic() - life.started > PATIENCE:
            raise BrokenPromiseError(f"a life hangs: {life.said()[-500:]}")
        if not ready():
            time.sleep(0.0005)
            continue
        time.sleep(pause)
        life.process.send_signal(signal.SIGSTOP)
        if not pause and not ready():  # it was over before the signal came
            life.process.send_signal(signal.SIGCONT)
            continue
        meanwhile()
        life.process.kill()
        return life.process.wait() == -signal.SIGKILL
    return False


@dataclass
class Soak:
    """All lives of one family."""

    name: str
    family: Family
    root: Path
    random: random.Random
    hits: Counter[str] = field(default_factory=Counter)
    finished: int = 0
    seconds: float = 30.0  # of a whole life
    meanwhile: Callable[[], object] = lambda: None  # done while a life is stopped, before it is killed

    def run(self, phases: list[str]) -> None:
        """One kill for each phase, then the end, and a comparison with the run that was left alone."""
        begun = time.monotonic()
        self.reference = self._complete(self.root / "reference")
        self.seconds = time.monotonic() - begun
        folder = self._fresh()
        for phase in phases:
            while not self._killed(folder, phase):
                folder = self._compared(folder)
        self._compared(folder)

    def _fresh(self) -> Path:
        return self.root / f"run-{self.finished}"

    def _killed(self, folder: Path, phase: str) -> bool:
        with alive(self.family.command(folder), folder, self.root / "log") as life:
            if phase == "anywhere":
                moment = self.random.uniform(0, self.seconds)
                hit = strike(life, lambda: time.monotonic() - life.started > moment)
            else:
                ahead, pause = self.random.randint(1, 3), self.random.choice([0.0, self.random.uniform(0, 0.5)])
                pause = pause if phase in ("compile", "chunk") else 0.0
                hit = strike(life, lambda: life.in_phase(phase, ahead), pause, self.meanwhile)
        if life.process.returncode not in (0, -signal.SIGKILL):
            raise BrokenPromiseError(f"{self.name}: a life ended with {life.process.returncode}: {life.said()[-1000:]}")
        self.hits[phase] += hit
        return hit

    def _complete(self, folder: Path) -> Path:
        with alive(self.family.command(folder), folder, self.root / "log") as life:
            if life.process.wait(PATIENCE) != 0:
                raise BrokenPromiseError(f"{self.name}: could not continue: {life.said()[-1000:]}")
        return folder

    def _compared(self, folder: Path) -> Path:
        difference(self._complete(folder), self.reference)
        self.finished += 1
        return self._fresh()

    def kill_reports(self, number: int) -> None:
        """A page that is being rewritten is the old one or the new one, never a part."""
        page = self.root / "pages" / "report.html"
        command = [sys.executable, "-m", "prism_marl.cli", "report", str(self.reference), "--out", str(page)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        whole = page.read_bytes()
        while self.hits["report"] < number:
            with alive(command, self.root, self.root / "log") as life:
                self.hits["report"] += strike(life, lambda: any(page.parent.glob(".*.tmp")))
            if page.read_bytes() != whole:
                raise BrokenPromiseError("a killed report changed the page")
            for part in page.parent.glob(".*.tmp"):
                part.unlink()


def difference(folder: Path, reference: Path) -> None:
    """Every file that is not a time or a machine must be the same, and every array of the newest checkpoint. Of what a
    policy costs, all but the time that it takes."""
    measured = {"timing.jsonl", "machine.json", ".lock"}
    names = [
        {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name not in measured}
        for root in (folder, reference)
    ]
    if {name for name in names[0] ^ names[1] if not name.startswith("checkpoints/")}:
        raise BrokenPromiseError(f"files differ: {sorted(names[0] ^ names[1])[:4]}")
    for name in sorted(names[1]):
        if not name.startswith("checkpoints/") and untimed(folder / name) != untimed(reference / name):
            raise BrokenPromiseError(f"{name} differs")
    one, other = (
        safetensors.numpy.load_file(checkpoint.paths(root / "checkpoints")[0]) for root in (folder, reference)
    )
    for name in one.keys() | other.keys():
        if name not in one or name not in other or not _same(one[name], other[name]):
            raise BrokenPromiseError(f"array {name} differs")


def untimed(path: Path) -> object:
    """The content of a file, without what was measured with a clock."""
    if path.name != "deployment.json":
        return path.read_bytes()
    return {key: value for key, value in json.loads(path.read_bytes()).items() if key != "microseconds"}


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None, help="of the moments (default: another one every time)")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--out", type=Path, default=Path("runs/soak.json"))
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    reports = min(2, options.kills)
    turns = [PHASES[n % len(PHASES)] for n in range(options.kills - reports)]
    begun, result, faults = time.monotonic(), {}, []
    with tempfile.TemporaryDirectory(prefix="prism-marl-soak-") as root:
        os.environ.setdefault("PRISM_MARL_CACHE", f"{root}/cache")
        for index, name in enumerate(options.families):
            place = Path(root) / name
            place.mkdir()
            soak = Soak(name, FAMILIES[name], place, random.Random(f"{seed}-{name}"))
            try:
                soak.run(turns[index :: len(options.families)])
                if index == 0:
                    soak.kill_reports(reports)
            except BrokenPromiseError as broken:
                faults.append(f"{name}: {broken}")
            result[name] = {"kills": dict(soak.hits), "runs_compared": soak.finished}
            print(f"{name}: {sum(soak.hits.values())} kills, {soak.finished} run(s) identical", flush=True)
    kills = sum(sum(entry["kills"].values()) for entry in result.values())
    minutes = round((time.monotonic() - begun) / 60, 1)
    summary = {"kills": kills, "identical": not faults, "faults": faults, "minutes": minutes, "seed": seed}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(summary | {"families": result}, indent=1) + "\n")
    print(json.dumps(summary))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
