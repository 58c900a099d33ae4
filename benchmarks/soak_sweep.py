"""A sweep of hundreds of experiments, some of which fail: does the process that drives it grow, or leave things behind?

    python benchmarks/soak_sweep.py [--experiments 200] [--out runs/sweep.json]

Every tenth experiment is one whose task ends it with an error, or whose process dies. Memory, descriptors and threads
of the driver are sampled while experiments run, and apart from that when it puts their returns together at the end,
which needs more the more there are. Afterwards the failures must be exactly those, a second call must try only them,
and neither the folder for temporary files nor the cache of programs may have grown past its bound.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from prism_marl.storage.cache import Cache, cache_limit, folders_of

CONCLUDING = 512  # MB that the summary may take: resamples of all seeds, which reports.stats bounds
TASKS = '''
"""Experiments of which some fail."""
import os
import numpy as np
from prism_marl import envs
from prism_marl.envs.python.base import observation, outcome
from prism_marl.experiment.presets import preset
from prism_marl.types import EnvSpec

class Fails:
    spec = EnvSpec("fails", 2, observation=1, state=1, actions=2, roles=2, horizon=2)
    def __init__(self, variant):
        self.variant = variant
    def reset(self, seed):
        return self._seen()
    def step(self, action):
        if self.variant == "dies":
            os._exit(3)
        return outcome(self._seen(), float("nan"), terminated=False, truncated=True)
    def _seen(self):
        return observation(np.ones((2, 1)), np.ones((2, 2), bool), np.ones(1))
    def scene(self):
        return None
    def close(self):
        pass

envs.register("fails", envs.Family("fails/<how>", ("nan",), "for a soak", python=Fails))
SMALL = {"network.width": "4", "learner.embed": "4", "learner.hypernet": "4", "learner.batch": "2",
         "learner.buffer": "8", "run.envs": "1", "run.eval_episodes": "2", "run.steps": "20", "run.eval_every": "10"}

def one(number):
    bad = number % 10 == 7
    task = ("fails/nan" if number % 20 == 7 else "fails/dies") if bad else "roles/2"
    made = preset("roles/2", "fups")
    made = made.changed(task=task)
    for path, text in {**SMALL, "run.seed": str(number), "run.patience": "0"}.items():
        made = made.with_option(path, text)
    return made

sweep = [one(number) for number in range(NUMBER)]
'''


def about(pid: int) -> dict[str, float]:
    """What a process holds now."""
    root = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines())
    return {
        "mb": int(status["VmRSS"].split()[0]) / 1024,
        "threads": int(status["Threads"]),
        "descriptors": len(list((root / "fd").iterdir())),
    }


def drive(command: list[str], log: Path) -> tuple[int, list[dict[str, float]], float]:
    """Run it; its exit code, what it held every half second while experiments ran, and its largest memory in MB."""
    samples: list[dict[str, float]] = []
    since: list[dict[str, float]] = []  # an experiment was last seen
    most = 0.0
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        while process.poll() is None:
            time.sleep(0.5)
            try:
                since.append(about(process.pid))
                busy = any(part.read_text().split() for part in Path(f"/proc/{process.pid}/task").glob("*/children"))
            except (OSError, KeyError):
                break
            most = max(most, since[-1]["mb"])
            if busy:
                samples, since = samples + since, []
        return process.wait(), samples, round(most, 1)


def growth(samples: list[dict[str, float]]) -> dict[str, list[float]]:
    """The largest value of the second fifth and of the last."""
    fifth = max(1, len(samples) // 5)
    parts = samples[fifth : 2 * fifth], samples[-fifth:]
    return {name: [round(max(one[name] for one in part), 1) for part in parts] for name in samples[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("runs/sweep.json"))
    options = parser.parse_args()
    begun, faults = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="prism-marl-sweep-") as place:
        root = Path(place)
        (root / "tmp").mkdir()
        os.environ |= {"PRISM_MARL_CACHE": f"{root}/cache", "TMPDIR": f"{root}/tmp"}
        (root / "many.py").write_text(TASKS.replace("NUMBER", str(options.experiments)))
        command = [sys.executable, "-m", "prism_marl.cli", "sweep", str(root / "many.py"), "--out", str(root / "runs")]
        code, samples, most = drive(command, root / "log")
        said = (root / "log").read_text(errors="replace")
        bad = sum(number % 10 == 7 for number in range(options.experiments))
        done = len(list((root / "runs").rglob("done")))
        held = growth(samples)
        kept = [size for one in folders_of(root / "cache") for _, size, _ in Cache(one).files()]
        found: dict[str, Any] = {
            "experiments": options.experiments,
            "failed": said.count("failed: fails/"),
            "finished": done,
            "driver": held,
            "driver_mb_at_most": most,
            "temporary files": sum(1 for _ in (root / "tmp").rglob("*")),
            "cache_mb": round(sum(kept) / 1e6),
        }
        if code != 1 or done != options.experiments - bad or "Traceback" in said:
            faults.append(f"ended with {code}: {said[-1500:]}")
        if held["mb"][1] > 1.1 * held["mb"][0] + 20 or any(
            held[n][1] > held[n][0] + 4 for n in ("threads", "descriptors")
        ):
            faults.append("the driver grows")
        if most > held["mb"][1] + CONCLUDING:
            faults.append(f"the driver needs {most:.0f} MB at the end")
        if found["temporary files"] or found["cache_mb"] * 1e6 > 2 * cache_limit():
            faults.append("things are left behind")
        code, _, _ = drive(command, root / "log")
        said = (root / "log").read_text(errors="replace")
        if code != 1 or f"{done} had been finished before" not in said:
            faults.append(f"a second call: {code}: {said[-800:]}")
    summary = found | {"faults": faults, "minutes": round((time.monotonic() - begun) / 60, 1)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
