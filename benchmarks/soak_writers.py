"""Kill everything that writes besides training, and look at what is left: the old file or the new one, never a part.

    python benchmarks/soak_writers.py [--kills 6] [--only report-page ...] [--out runs/writers.json]

Each command is run twice undisturbed, with an old and a new setting, so that both contents are known. Then the old
files are put back and the command with the new setting is killed, again and again: half of the kills come while a
temporary file is there, the others at any time. Every file must have one of the two contents, and a last run must
reach the new. Sweeps are killed at their driver, at a worker and, with Ray, at its raylet; the same command then has
to finish them, and the rows have to be those of runs that were left alone.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from soak_kills import PATIENCE, BrokenPromiseError, alive, strike

from prism_marl.runs.progress import read_progress

CLI = [sys.executable, "-m", "prism_marl.cli"]
TINY = {
    "network.width": "8", "run.envs": "2", "run.eval_episodes": "4", "run.seeds": "2", "learner.embed": "4",
    "learner.hypernet": "4", "learner.batch": "4", "learner.buffer": "64", "run.steps": "1500", "run.eval_every": "50",
}  # fmt: skip
EXPECTED = (0, 1, 130, -signal.SIGKILL)


@dataclass
class Writer:
    """A command that writes files below a folder; ``words`` says which, and with which of two settings."""

    name: str
    words: Callable[[Path, Path, bool], list[str]]  # (a finished run, where to write, whether the new setting)


def titled(new: bool) -> list[str]:
    return ["--title", "new" if new else "old"]


def exported(run: Path, path: Path, new: bool) -> list[str]:
    return ["export", str(run), "--out", str(path), "--seed", str(int(new))]


WRITERS = (
    Writer("report-file", lambda run, out, new: ["report", str(run), "--out", str(out / "page.html"), *titled(new)]),
    Writer("report-page", lambda run, out, new: ["report", str(run), "--out", str(out / "page"), *titled(new)]),
    Writer(
        "eval-gif",
        lambda run, out, new: [
            *("eval", str(run), "--episodes", "4", "--render", str(out / "x.gif"), "--episode", str(int(new)))
        ],
    ),
    Writer(
        "eval-mp4",
        lambda run, out, new: [
            *("eval", str(run), "--episodes", "4", "--render", str(out / "x.mp4"), "--episode", str(int(new)))
        ],
    ),
    Writer("reproduce", lambda run, out, new: ["reproduce", "fig-scaling", "--out", str(out)]),
    Writer("footprint-plot", lambda run, out, new: ["footprint", "--plot", str(out / "x.png")]),
    *(
        Writer(f"export-{ending}", lambda run, out, new, ending=ending: exported(run, out / f"x.{ending}", new))
        for ending in ("onnx", "safetensors", "npz")
    ),
)


@dataclass
class Kills:
    """What was killed, and how often."""

    root: Path
    random: random.Random
    hits: Counter[str] = field(default_factory=Counter)

    def writer(self, writer: Writer, run: Path, kills: int) -> None:
        place = self.root / writer.name
        held, seconds = {}, 0.0
        for new in (False, True):
            (place / "out").mkdir(parents=True, exist_ok=True)
            begun = time.monotonic()
            subprocess.run([*CLI, *writer.words(run, place / "out", new)], check=True, capture_output=True)
            seconds = time.monotonic() - begun
            held[new] = contents(place / "out")
            (place / "out").rename(place / ("new" if new else "old"))
        command = [*CLI, *writer.words(run, place / "out", True)]
        while self.hits[writer.name] < kills:
            shutil.rmtree(place / "out", ignore_errors=True)
            shutil.copytree(place / "old", place / "out")
            aimed = self.hits[writer.name] % 2 == 0
            moment = time.monotonic() + self.random.uniform(0, seconds)

            def ready(aimed: bool = aimed, moment: float = moment) -> bool:
                return any((place / "out").rglob(".*.tmp")) if aimed else time.monotonic() > moment

            with alive(command, place, self.root / "log") as life:
                hit = strike(life, ready)
            if not hit and aimed:
                aimed = False  # the writing was too short to be seen
            self.hits[writer.name] += 1
            for name, content in contents(place / "out").items():
                if content not in (held[False].get(name), held[True].get(name)):
                    raise BrokenPromiseError(f"{writer.name}: {name} is neither the old file nor the new one")
        subprocess.run(command, check=True, capture_output=True)
        if contents(place / "out") != held[True]:
            raise BrokenPromiseError(f"{writer.name}: the last run did not reach the new files")

    def sweep(self, executor: str, victim: str, reference: Path) -> None:
        """Kill a part of a sweep of two experiments, and let the same command finish it at once."""
        name, out = f"sweep-{executor}-{victim}", self.root / f"sweep-{executor}-{victim}"
        options = [word for key, value in TINY.items() for word in (f"--{key}", value)]
        words = ["sweep", "roles/2", "--sharing", "fups", *options, "--run.seed", "5,6", "--executor", executor]
        command = [*CLI, *words, "--out", str(out)]
        with (self.root / "log").open("wb") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            target = wait_for(lambda: part(victim, driver, out), driver)
            if target is None:
                raise BrokenPromiseError(f"{name}: it ended before it could be killed: {said(self.root)}")
            os.kill(target, signal.SIGKILL)
            if victim == "driver":
                driver.wait(PATIENCE)
            else:
                code = driver.wait(PATIENCE)
                if code not in EXPECTED or "Traceback" in said(self.root):
                    raise BrokenPromiseError(f"{name}: ended with {code}: {said(self.root)}")
        finally:
            driver.kill()
            driver.wait()
        self.hits[name] += 1
        again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if again.returncode != 0:
            raise BrokenPromiseError(f"{name}: could not be finished: {again.stderr[-800:]}")
        for run in sorted(path.parent for path in out.rglob("done")):
            rows = (run / "eval.jsonl").read_bytes()
            if b'"seed": 5' in rows.partition(b"\n")[0] and rows != (reference / "eval.jsonl").read_bytes():
                raise BrokenPromiseError(f"{name}: the rows are not those of a run that was left alone")


def said(root: Path) -> str:
    return (root / "log").read_text(errors="replace")[-1500:]


def contents(folder: Path) -> dict[str, object]:
    """Every file but temporary ones; a manifest may name old and new files while a page is being written."""
    names = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): content(path) for path in names}


def content(path: Path) -> object:
    """The bytes of a file; the description of a policy without the time that was measured."""
    found = path.read_bytes()
    try:
        return {k: v for k, v in json.loads(found).items() if k != "latency"} if path.suffix == ".json" else found
    except (ValueError, AttributeError):
        return found


def wait_for(find: Callable[[], int | None], driver: "subprocess.Popen[bytes]") -> int | None:
    until = time.monotonic() + PATIENCE
    while driver.poll() is None and time.monotonic() < until:
        found = find()
        if found is not None:
            return found
        time.sleep(0.01)
    return None


def part(victim: str, driver: "subprocess.Popen[bytes]", out: Path) -> int | None:
    """The process to kill, once some rows are there."""
    begun = [path for path in out.rglob("eval.jsonl") if path.read_bytes().count(b"\n") >= 8]
    if not begun:
        return None
    if victim == "driver":
        return driver.pid
    if victim == "worker":
        progress = read_progress(begun[0].parent)
        return None if progress is None else progress.pid
    return next((pid for pid in descendants(driver.pid) if named(pid, "raylet/raylet")), None)


def descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
    found, waiting = [], [pid]
    while waiting:
        above = waiting.pop()
        below = [one for one, parent in parents.items() if parent == above]
        found += below
        waiting += below
    return found


def named(pid: int, word: str) -> bool:
    try:
        return word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return False


SWEEPS = [("local", "driver"), ("local", "worker"), ("ray", "driver"), ("ray", "worker"), ("ray", "raylet")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=6, help="for each command that writes")
    parser.add_argument("--only", nargs="+", help="names such as report-page or sweep-ray-raylet")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/writers.json"))
    options = parser.parse_args()
    begun, faults = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="prism-marl-writers-", ignore_cleanup_errors=True) as place:
        root = Path(place)
        os.environ.setdefault("PRISM_MARL_CACHE", f"{root}/cache")
        kills = Kills(root, random.Random(options.seed))
        drawn, plain = root / "runs" / "lbf", root / "runs" / "roles"
        for task, run, more in (("lbf/4x4-2p-1f", drawn, "0"), ("roles/2", plain, "5")):
            settings = [word for key, value in TINY.items() for word in (f"--{key}", value)]
            words = ["train", task, "--sharing", "fups", *settings, "--run.seed", more, "--out", str(run)]
            subprocess.run([*CLI, *words], check=True, capture_output=True)
        jobs: list[tuple[str, Callable[[], None]]] = [
            (writer.name, lambda writer=writer: kills.writer(writer, drawn, options.kills)) for writer in WRITERS
        ]
        jobs += [(f"sweep-{how}-{who}", lambda how=how, who=who: kills.sweep(how, who, plain)) for how, who in SWEEPS]
        for name, job in jobs:
            if options.only and name not in options.only:
                continue
            try:
                job()
            except (BrokenPromiseError, subprocess.CalledProcessError) as broken:
                faults.append(f"{name}: {broken} {getattr(broken, 'stderr', b'')!r}"[:1500])
            print(f"{name}: {kills.hits[name]} kills", flush=True)
    minutes = round((time.monotonic() - begun) / 60, 1)
    summary = {"kills": dict(kills.hits), "faults": faults, "minutes": minutes}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
