"""Record short trainings with the code of one checkout, and compare two such recordings bit by bit.

    python benchmarks/golden.py record --source CHECKOUT/src --out golden/before
    python benchmarks/golden.py record --source OTHER/src --out golden/after
    python benchmarks/golden.py compare golden/before golden/after

It is for rewrites that must not change a number. Everything goes through the command line and through files of run
folders, so that the script knows nothing of the code that is rewritten. Learners, host loops and compiled loops,
resets, clusterings and switches of sharing methods all take part, and two runs are killed once and continued.

Both recordings belong on the same machine, with the same packages: other processors and other compilers round
otherwise. What was measured in seconds is not compared, nor is ``config.json``. Where a rewrite gives tensors other
names, ``RENAMED`` says so. Nearly all of the time is compiling, so LLVM is told to optimise little; what XLA itself
does to programs stays. ``XLA_FLAGS=--xla_backend_optimization_level=3`` before ``record`` compiles as users do, in
twice the time.
"""

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

# Pattern in a tensor's name of the first recording -> what the second has in its place: from checkpoint format 3 to 4.
RENAMED: dict[str, str] = {
    r"^seeds\.learner\.renewed$": "seeds.state.critic_resets",
    r"^seeds\.learner\.": "seeds.state.",
    r"^seeds\.key$": "seeds.state.key",
    r"^seeds\.replay\.": "seeds.buffer.",
    r"^seeds\.(sums|faults)\.": r"seeds.log.\1.",
    r"^(iteration|summed)$": r"clock.\1",
    r"^updates$": "clock.own.0",
    r"^renewed$": "clock.own.1",
    r"^simulator\.": "snapshot.",
}
# The same, but only where the second recording has such a name: episodes keep observations in a record of their own
MOVED: dict[str, str] = {r"^(seeds\.buffer\.storage)\.(local|state|avail|role)$": r"\1.obs.\2"}
PATIENCE = 3600  # seconds until a run counts as hung
SHOWN = 8  # names printed of those that have no counterpart
KILLED = "-killed"  # ends the name of a run that was killed and continued
QUICK = "--xla_backend_optimization_level=1"

SMALL = {"run.seeds": "2", "run.seed": "5", "run.envs": "2", "run.eval_episodes": "4", "network.width": "16"}
EPISODES = SMALL | {
    "learner.embed": "8",
    "learner.hypernet": "8",
    "learner.batch": "8",
    "learner.buffer": "32",
    "learner.target_interval": "5",
    "learner.epsilon_anneal": "1500",
}
TRANSITIONS = SMALL | {
    "learner.critic_width": "16",
    "learner.n_critics": "3",
    "learner.batch": "16",
    "learner.buffer": "400",
    "learner.warmup": "40",
    "learner.train_interval": "5",
    "learner.updates": "5",
}
EARLY_MASKS = {"sharing.threshold_shift": "0"}  # much is masked from the start, so that resets find something

GAME = '''"""Three players walk to places of their own; whoever arrives leaves."""

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv


class Walkers(ParallelEnv):
    metadata = {"name": "golden_walkers_v0", "render_modes": []}

    def __init__(self, motors=False, max_cycles=8):
        self.possible_agents = ["first", "second", "third"]
        self.motors, self.max_cycles, self.render_mode = motors, max_cycles, None

    def observation_space(self, agent):
        return Box(-np.inf, np.inf, (3 if agent == "third" else 2,), np.float32)

    def action_space(self, agent):
        wide = agent == "second"
        return Box(-1.0, 3.0, (1 + wide,), np.float32) if self.motors else Discrete(3 + wide)

    def reset(self, seed=None, options=None):
        self.agents, self.clock = list(self.possible_agents), 0
        draw = np.random.default_rng(seed)
        self.place = dict(zip(self.agents, draw.integers(-3, 4, size=3).astype(float)))
        self.goal = dict(zip(self.agents, draw.integers(-3, 4, size=3).astype(float)))
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.clock += 1
        for agent, action in actions.items():
            self.place[agent] += float(np.sum(action)) - 1
        away = {agent: abs(self.place[agent] - self.goal[agent]) for agent in self.agents}
        ends = {agent: distance < 0.3 for agent, distance in away.items()}
        cuts = dict.fromkeys(self.agents, self.clock >= self.max_cycles)
        rewards = {agent: 1.0 if ends[agent] else -0.05 * distance for agent, distance in away.items()}
        seen, infos = self._seen(), {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (ends[agent] or cuts[agent])]
        return seen, rewards, ends, cuts, infos

    def _seen(self):
        clock = self.clock / self.max_cycles
        parts = {agent: [self.place[agent], self.goal[agent], clock] for agent in self.agents}
        return {agent: np.array(part[: 3 if agent == "third" else 2], np.float32) for agent, part in parts.items()}


def parallel_env(**settings):
    return Walkers(**settings)
'''


@dataclass(frozen=True)
class Run:
    """One tiny experiment."""

    task: str
    method: str
    fields: dict[str, str]
    killed: bool = False  # once, in the middle, and continued by the same command

    def command(self, folder: Path) -> list[str]:
        words = [word for path, value in self.fields.items() for word in (f"--{path}", value)]
        program = [sys.executable, "-P", "-m", "prism_marl.cli", "train", self.task, "--sharing", self.method]
        return [*program, *words, "--out", str(folder)]


def stretch(steps: int, every: int) -> dict[str, str]:
    """How long a run trains, and after how many steps it is evaluated."""
    return {"run.steps": str(steps), "run.eval_every": str(every)}


ALONE = {
    "lbf-prism": Run(
        "lbf/8x8-2p-2f-coop",
        "prism",
        EPISODES
        | EARLY_MASKS
        | stretch(20_000, 2_000)
        | {"learner.epsilon_anneal": "10000", "run.eval_episodes": "16", "sharing.reset_interval": "4500"},
    ),
    "lbf-seps": Run(
        "lbf/8x8-2p-2f",
        "seps",
        EPISODES | stretch(12_000, 4_000) | {"run.eval_episodes": "16", "sharing.pretraining": "1500"},
    ),
    "roles-kaleidoscope": Run(
        "roles/4",
        "kaleidoscope",
        EPISODES | EARLY_MASKS | stretch(1500, 500) | {"sharing.reset_interval": "400", "sharing.reset_ratio": "0.5"},
    ),
    "roles-lorasa": Run("roles/4", "lorasa", EPISODES | stretch(1500, 500) | {"sharing.switch_step": "700"}),
    "skirmish-prism": Run(
        "skirmish/terran_5_vs_5",
        "prism",
        EPISODES
        | stretch(1600, 800)
        | {"run.seeds": "1", "run.envs": "4", "learner.buffer": "16", "learner.target_interval": "4"},
    ),
    "lbforaging-adaps": Run(
        "lbforaging/8x8-2p-2f",
        "adaps",
        EPISODES
        | stretch(2000, 1000)
        | {"run.eval_episodes": "20", "sharing.pretraining": "400", "sharing.recluster_interval": "500"},
    ),
    "pettingzoo-fups_id": Run(
        "pettingzoo/golden_game",
        "fups_id",
        EPISODES
        | stretch(1000, 500)
        | {"learner.last_action": "true", "learner.td_lambda": "0", "learner.target_rate": "0.05"}
        | {"learner.standardise_rewards": "false", "learner.time_limit_ends": "false"},
    ),
    "reach-prism": Run(
        "reach/3",
        "prism",
        TRANSITIONS
        | EARLY_MASKS
        | stretch(1600, 160)
        | {"learner.overlap": "true", "learner.explore": "0.2", "sharing.reset_interval": "350"},
    ),
    "hopper-kaleidoscope": Run(
        "mamujoco/hopper-3x1",
        "kaleidoscope",
        TRANSITIONS
        | EARLY_MASKS
        | stretch(800, 400)
        | {"sharing.reset_interval": "200", "sharing.critic_reset_interval": "150"},
    ),
    "pettingzoo-seps": Run(
        "pettingzoo/golden_game?motors=true",
        "seps",
        TRANSITIONS | stretch(600, 300) | {"sharing.pretraining": "200", "learner.policy_freq": "3"},
    ),
}
RUNS = ALONE | {name + KILLED: replace(ALONE[name], killed=True) for name in ("lbf-prism", "reach-prism")}


class TroubleError(Exception):
    """A recording cannot be made; the text says why."""


def record(source: Path, out: Path, jobs: int) -> list[str]:
    """Train all runs; returns what is wrong with those that were killed."""
    if out.exists() and any(out.iterdir()):
        raise TroubleError(f"{out} is not empty; choose another --out, or remove the folder")
    (out / "games").mkdir(parents=True, exist_ok=True)
    (out / "logs").mkdir()
    (out / "games" / "golden_game.py").write_text(GAME)
    environment = surroundings(source, out)
    check_origin(source, out, environment)

    def one(name: str) -> None:
        started = time.monotonic()
        train(RUNS[name], out / name, out / "logs" / f"{name}.txt", environment)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for _ in pool.map(one, RUNS):
            pass
    return [text for name in RUNS if name.endswith(KILLED) for text in interrupted(out, name)]


def interrupted(out: Path, name: str) -> list[str]:
    """Where a run that was killed ended otherwise than the one that was left alone."""
    found = differences(out / name.removesuffix(KILLED), out / name, name_of=str)
    return [f"{name} differs from the run that was left alone: {text}" for text in found]


def surroundings(source: Path, out: Path) -> dict[str, str]:
    """Environment of all runs: this source before all others, our game, the CPU, and compiled programs of their own."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(source), str(out / "games"))),
        "PRISM_MARL_CACHE": str(out / "cache"),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{QUICK} {os.environ.get('XLA_FLAGS', '')}".strip(),
    }


def check_origin(source: Path, out: Path, environment: Mapping[str, str]) -> None:
    """An installed package must not come before the checkout."""
    program = [sys.executable, "-P", "-c", "import prism_marl; print(prism_marl.__file__)"]
    found = subprocess.run(program, capture_output=True, text=True, check=False, env=environment, cwd=out)
    if found.returncode:
        raise TroubleError(f"{source} holds no package prism_marl: {found.stderr.strip()[-500:]}")
    if not Path(found.stdout.strip()).resolve().is_relative_to(source):
        raise TroubleError(f"prism_marl would come from {found.stdout.strip()}, not from {source}")


def train(run: Run, folder: Path, log: Path, environment: Mapping[str, str]) -> None:
    """One run in its own process, or in two where it is killed in between."""
    if run.killed:
        rows = live(run, folder, log, environment, enough=lambda: in_the_middle(folder))
        live(run, folder, log, environment)
        if len(lines(folder, "eval")) <= rows:
            raise TroubleError(f"{folder.name} was over before it was killed; let it train longer")
    else:
        live(run, folder, log, environment)


def live(
    run: Run, folder: Path, log: Path, environment: Mapping[str, str], enough: Callable[[], bool] | None = None
) -> int:
    """Wait for the end of a process, or kill it as soon as it is enough; returns the rows of evaluations by then."""
    begun, wanted = time.monotonic(), -signal.SIGKILL if enough else 0
    with log.open("ab") as file:
        process = subprocess.Popen(
            run.command(folder), stdout=file, stderr=subprocess.STDOUT, env=environment, cwd=folder.parent
        )
        try:
            while process.poll() is None and not (enough and enough()):
                if time.monotonic() - begun > PATIENCE:
                    raise TroubleError(f"{folder.name} hangs; see {log}")
                time.sleep(0.002 if enough else 0.05)
        finally:
            process.kill()
            process.wait()
    if process.returncode != wanted:
        said = log.read_text(errors="replace").strip()[-1000:]
        raise TroubleError(f"{folder.name} ended with {process.returncode} instead of {wanted}: {said}")
    return len(lines(folder, "eval"))


def in_the_middle(folder: Path) -> bool:
    """Whether the second evaluation has its row, and networks that have learned are in a checkpoint."""
    rows = lines(folder, "eval")
    return bool(rows) and json.loads(rows[-1])["evaluation"] >= 1 and len(checkpoints(folder)) >= 2


def lines(folder: Path, name: str) -> list[str]:
    """The whole lines of a file of rows; none where it is missing."""
    path = folder / f"{name}.jsonl"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def checkpoints(folder: Path) -> list[Path]:
    """Newest last."""
    found = folder.glob("checkpoints/*.safetensors")
    return sorted((path for path in found if path.stem.isdecimal()), key=lambda path: int(path.stem))


def renamed(name: str) -> str:
    """What a tensor of the first recording is called in the second."""
    for pattern, new in RENAMED.items():
        name = re.sub(pattern, new, name)
    return name


def differences(one: Path, other: Path, name_of: Callable[[str], str] = renamed) -> list[str]:
    """Where two runs differ first, file by file; nothing for equal ones."""
    for folder in (one, other):
        if not lines(folder, "eval") or not checkpoints(folder):
            return [f"{folder} holds no finished run"]
    found = [different_rows(name, lines(one, name), lines(other, name)) for name in ("eval", "train")]
    before, after = (safetensors.numpy.load_file(checkpoints(folder)[-1]) for folder in (one, other))
    found.append(different_tensors("checkpoint", before, after, name_of))
    found.append(different_spectra(one, other, name_of))
    return [text for text in found if text]


def different_spectra(one: Path, other: Path, name_of: Callable[[str], str]) -> str:
    """The first file of singular values that is not the same."""
    names = [{path.name for path in folder.glob("spectra/*.safetensors")} for folder in (one, other)]
    for name in sorted(names[0] | names[1]):
        if name not in names[0] & names[1]:
            return f"spectra/{name} stands on one side only"
        before, after = (safetensors.numpy.load_file(folder / "spectra" / name) for folder in (one, other))
        if text := different_tensors(f"spectra/{name}", before, after, name_of):
            return text
    return ""


def different_rows(name: str, one: list[str], other: list[str]) -> str:
    """The first row that is not the same, and its first field."""
    for number, (before, after) in enumerate(zip(one, other, strict=False), 1):
        if before != after:
            return f"{name}.jsonl line {number}: {different_field(json.loads(before), json.loads(after))}"
    return "" if len(one) == len(other) else f"{name}.jsonl has {len(one)} lines and {len(other)} lines"


def different_field(one: dict[str, Any], other: dict[str, Any]) -> str:
    for field in (*one, *(field for field in other if field not in one)):
        before, after = (row.get(field, "missing") for row in (one, other))
        if before != after:
            return f"{field} is {before} and {after}"
    return "the same values, written otherwise"


def different_tensors(
    place: str, one: dict[str, np.ndarray], other: dict[str, np.ndarray], name_of: Callable[[str], str]
) -> str:
    """How many tensors differ, the first of them, and names without a counterpart."""
    held, one = one, {_found(name_of(name), other): value for name, value in one.items()}
    both = sorted(one.keys() & other.keys())
    changed = [name for name in both if content(one[name]) != content(other[name])]
    found = ["RENAMED gives two tensors one name"] if len(one) < len(held) else []
    if changed:
        first = changed[0]
        found.append(f"{len(changed)} of {len(both)} tensors differ, first {first} {gap(one[first], other[first])}")
    if one.keys() != other.keys():
        found.append(strangers(one, other))
    return f"{place}: {', '.join(found)}" if found else ""


def _found(name: str, other: Mapping[str, Any]) -> str:
    """The name, or where the tensor has moved to if it has."""
    moved = (re.sub(pattern, new, name) for pattern, new in MOVED.items())
    return next((candidate for candidate in moved if candidate in other), name)


def content(value: np.ndarray) -> tuple[Any, ...]:
    """Shape, type and bits."""
    return value.shape, str(value.dtype), hashlib.sha256(value.tobytes()).hexdigest()


def gap(one: np.ndarray, other: np.ndarray) -> str:
    """How far two tensors are apart."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"({one.dtype}{list(one.shape)} and {other.dtype}{list(other.shape)})"
    return f"(by up to {np.max(np.abs(one.astype(float) - other.astype(float))):.3g})"


def strangers(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> str:
    """Names that stand on one side only, and how many tensors are missing whatever their names."""
    counts = [Counter(content(value) for value in tensors.values()) for tensors in (one, other)]
    missing, new = ((counts[a] - counts[1 - a]).total() for a in (0, 1))
    alike = defaultdict(list)
    for name in sorted(other.keys() - one.keys()):
        alike[content(other[name])].append(name)
    gone = sorted(one.keys() - other.keys())
    texts = [f"\n    {name} -> {likely(name, alike[content(one[name])])}" for name in gone]
    only = f"{len(gone)} names only before, {len(other.keys() - one.keys())} only after"
    kept = "the same tensors under other names" if not missing + new else f"{missing} tensors are gone, {new} are new"
    return f"{only} ({kept}){shortened(texts)}"


def likely(name: str, alike: list[str]) -> str:
    """Of the names of equal tensors, the most similar one."""
    return next(iter(get_close_matches(name, alike, n=1, cutoff=0)), "?")


def shortened(texts: list[str]) -> str:
    rest = f"\n    and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "".join(texts[:SHOWN]) + rest


def compare(one: Path, other: Path) -> bool:
    """A line for each run; whether all are identical."""
    same = True
    for name in RUNS:
        found = differences(one / name, other / name)
        print(f"{name}: {'; '.join(found) or 'identical'}")
        same = same and not found
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="train all runs with the code of a checkout")
    recording.add_argument("--source", type=Path, required=True, help="the folder that holds prism_marl")
    recording.add_argument("--out", type=Path, required=True, help="a new folder")
    recording.add_argument("--jobs", type=int, default=2, help="runs at a time")
    comparing = commands.add_parser("compare", help="compare two recordings")
    comparing.add_argument("one", type=Path)
    comparing.add_argument("other", type=Path)
    found = parser.parse_args()
    if found.command == "compare":
        return 0 if compare(found.one, found.other) else 1
    try:
        trouble = record(found.source.resolve(), found.out.resolve(), found.jobs)
    except TroubleError as error:
        trouble = [str(error)]
    for text in trouble:
        print(text, file=sys.stderr)
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
