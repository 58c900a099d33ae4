"""Everything that can befall a run, at random, for as long as wanted; and a comparison with a run that was left alone.

    python benchmarks/soak_chaos.py [--minutes 60] [--seed N] [--out runs/chaos.json]

Training of each kind of task starts again and again in real processes. While one lives, one of these happens at a
random moment: it is killed, asked to stop, stopped for a while, its clock jumps by up to ten days, its disk fills up
(a file system of its own where this process may mount one, else a limit on the size of files), or its folder is moved
away or replaced by another run's. Games of one kind of task die in the middle of episodes, always of the same ones,
so that also these runs can be compared. Every end must be one of those that are promised, without a traceback;
whatever ends early is started again by the same command, and once a run says that it is done, every file and array is
compared.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from soak_kills import EPISODES, FAMILIES, PATIENCE, BrokenPromiseError, Family, difference

CLOCK = """
import os, sys, time
path, before, real = sys.argv.pop(1), [0.0, 0.0], time.time
def now():
    moment = real()
    if moment - before[1] > 0.05:
        before[1] = moment
        try:
            before[0] = float(open(path).read() or 0)
        except (OSError, ValueError):
            pass
    return moment + before[0]
time.time = now
from prism_marl.cli import main
sys.exit(main())
"""
GAME = """
import os
import numpy as np
from gymnasium.spaces import Box, Discrete
class Fragile:
    '''Two agents find out which of three actions pays; some episodes end with the process.'''
    metadata = {"name": "fragile"}
    possible_agents = ["a", "b"]
    max_cycles = 6
    def reset(self, seed=None, options=None):
        self.agents, self.clock, self.seed = list(self.possible_agents), 0, int(seed)
        self.wanted = np.random.default_rng(self.seed).integers(0, 3, 2)
        return self._seen(), {}
    def step(self, actions):
        self.clock += 1
        if self.seed % 29 == 3 and self.clock == 3:
            os._exit(1)
        if self.seed % 31 == 5 and self.clock == 2:
            raise RuntimeError("this episode is cursed")
        paid = {agent: float(actions[agent] == self.wanted[k]) for k, agent in enumerate(self.possible_agents)}
        over = {agent: self.clock >= self.max_cycles for agent in self.possible_agents}
        never = dict.fromkeys(self.possible_agents, False)
        if over["a"]:
            self.agents = []
        return self._seen(), paid, never, over, {}
    def _seen(self):
        return {agent: np.array([self.clock / 6, self.wanted[k]], np.float32)
                for k, agent in enumerate(self.possible_agents)}
    def observation_space(self, agent):
        return Box(-10, 10, (2,), np.float32)
    def action_space(self, agent):
        return Discrete(3)
    def close(self):
        pass
def parallel_env():
    return Fragile()
"""
SHORT = {"run.steps": "1200", "run.eval_every": "100", "run.seeds": "2"}
KINDS = {
    "compiled": FAMILIES["qmix-jax"],
    "python": FAMILIES["qmix-python"],
    "batches": FAMILIES["matd3-batches"],
    "dying games": Family("pettingzoo/prism_marl_fragile", "fups", EPISODES | SHORT | {"run.save_every": "2"}),
}
FATES = ("kill", "stop", "pause", "clock", "disk", "moved", "replaced")
MOVED = "was moved, deleted or replaced"


class Disk:
    """The file system on which runs are written."""

    def __init__(self, place: Path):
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(place)]
        able = shutil.which("mount") is not None
        self.real = able and subprocess.run(words, capture_output=True, check=False).returncode == 0

    def fill(self, pid: int) -> None:
        if not self.real:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
            return
        with contextlib.suppress(OSError), (self.place / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        (self.place / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        if self.real:
            subprocess.run(["umount", "--lazy", str(self.place)], check=False)


@dataclass
class Chaos:
    """One kind of task."""

    name: str
    family: Family
    root: Path
    disk: Disk
    dice: random.Random
    fates: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    finished: int = 0
    seconds: float = 30.0

    def prepare(self) -> None:
        """The run that is left alone."""
        begun = time.monotonic()
        self.reference = self.root / "reference"
        with self._started(self.reference) as process:
            if process.wait(PATIENCE) != 0:
                raise BrokenPromiseError(f"{self.name}: the run that is left alone fails: {self._said()[-1500:]}")
        self.seconds = time.monotonic() - begun

    def live(self) -> None:
        """One process and what befalls it; a comparison if it comes to its end."""
        folder, fate = self.disk.place / f"{self.name}-{self.finished}".replace(" ", "-"), self.dice.choice(FATES)
        with self._started(folder) as process:
            until = time.monotonic() + self.dice.uniform(0, self.seconds)
            while time.monotonic() < until and process.poll() is None:
                time.sleep(0.01)
            if process.poll() is None:
                self.fates[fate] += 1
                self._befall(fate, process, folder)
            code = process.wait(PATIENCE)
        self.disk.free()
        self._check(fate, code)
        if code == 0:
            difference(folder, self.reference)
            self.finished += 1
            shutil.rmtree(folder)

    def _befall(self, fate: str, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        away = folder.with_name(f"{folder.name}-away")
        if fate == "kill":
            process.kill()
        elif fate == "stop":
            process.terminate()
        elif fate == "pause":
            process.send_signal(signal.SIGSTOP)
            time.sleep(self.dice.uniform(0, 3))
            process.send_signal(signal.SIGCONT)
        elif fate == "clock":
            (self.root / "clock").write_text(f"{self.dice.uniform(-864_000, 864_000)}")
        elif fate == "disk":
            self.disk.fill(process.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.dice.uniform(1, 20))
            if process.poll() is None:  # it had nothing to write, or has not yet
                process.kill()
        elif folder.exists() and (folder / "config.json").exists():
            process.send_signal(signal.SIGSTOP)  # or it could be gone between two looks at it
            folder.rename(away)
            stranger = None
            if fate == "replaced":
                shutil.copytree(self.reference, folder)
                stranger = files(folder)
            process.send_signal(signal.SIGCONT)
            code = process.wait(PATIENCE)
            if stranger is not None:
                if files(folder) != stranger:
                    raise BrokenPromiseError(f"{self.name}: a run wrote into the folder of another")
                shutil.rmtree(folder)
            if folder.exists():
                raise BrokenPromiseError(f"{self.name}: a folder that was moved away came into being again")
            if code == 0 and not (away / "done").exists():
                raise BrokenPromiseError(f"{self.name}: it says that it is done, and its folder was moved away before")
            away.rename(folder)

    def _check(self, fate: str, code: int) -> None:
        allowed = {"kill": {-9}, "stop": {130}, "disk": {1, -9}, "moved": {1}, "replaced": {1}}.get(fate, set()) | {0}
        told = self._said()
        if fate == "stop" and (not told or "done:" in told):  # it was still being loaded, or just leaving
            allowed |= {-15}
        self.ends[str(code)] += 1
        if code not in allowed or "Traceback" in told:
            raise BrokenPromiseError(f"{self.name}, {fate}: ended with {code}: {told[-1500:]}")
        words = {"disk": "cannot be written", "moved": MOVED, "replaced": MOVED}.get(fate)
        if code == 1 and words and words not in told and not ("disk" in fate and "cannot be used" in told):
            raise BrokenPromiseError(f"{self.name}, {fate}: another sentence: {told[-1500:]}")

    @contextlib.contextmanager
    def _started(self, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
        """A process with a clock of its own that is gone afterwards."""
        (self.root / "clock").write_text("0")
        words = self.family.command(folder)[3:]
        with (self.root / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", CLOCK, str(self.root / "clock"), *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.root,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _said(self) -> str:
        return (self.root / "log").read_text(errors="replace")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="of what happens (default: another one every time)")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--out", type=Path, default=Path("runs/chaos.json"))
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    begun, faults, kinds = time.monotonic(), [], []
    with tempfile.TemporaryDirectory(prefix="prism-marl-chaos-") as place:
        os.environ.setdefault("PRISM_MARL_CACHE", f"{place}/cache")
        disk = Disk(Path(place) / "disk")
        try:
            for name in options.kinds:
                root = Path(place) / name.replace(" ", "-")
                root.mkdir()
                (root / "prism_marl_fragile.py").write_text(GAME)
                kinds.append(Chaos(name, KINDS[name], root, disk, random.Random(f"{seed}-{name}")))
            for kind in kinds:
                kind.prepare()
            while time.monotonic() - begun < 60 * options.minutes and not faults:
                for kind in kinds:
                    kind.live()
        except BrokenPromiseError as broken:
            faults.append(str(broken))
        finally:
            disk.close()
        real = disk.real
    summary = {
        "lives": sum(sum(kind.ends.values()) for kind in kinds),
        "compared": sum(kind.finished for kind in kinds),
        "faults": faults,
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "seed": seed,
        "full disks were real": real,
    }
    each = {kind.name: {"fates": kind.fates, "ends": kind.ends, "compared": kind.finished} for kind in kinds}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(summary | {"kinds": each}, indent=1) + "\n")
    print(json.dumps(summary | {"kinds": each}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
