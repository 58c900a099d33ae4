"""What do the checks cost that keep a run from writing or learning something wrong?

    python benchmarks/checks.py [--periods 60] [--parts folder spaces ...] [--out runs/checks.json]

Runs with the checks turned on and off from one evaluation to the next, in pairs of random order, so that both halves
meet the same machine. "folder" is training in JAX: the lock of the folder and the size of the rows are compared before
every write. The others are games in Python, where every observation, mask and reward is compared with what the game
declares: "spaces" costs next to nothing itself, "particles" is mpe2's simple_spread, and "foraging" the package
lbforaging.

A ratio is what a period takes without checks divided by what its neighbour takes with them: 1 is free of charge. It is
the median over all pairs of neighbours, with the interval in which the median of 90% of resampled pairs lies.
``ratio`` is of the processor time of the process, since other programs may share the machine, and ``wall`` of the
clock on the wall; ``microseconds`` is the processor time of a step with its share of training. Since checks can be far
below what a ratio can show, those of the folder are also timed one by one, and steps of the game alone (``game_alone``:
with checks, without, and the difference of equal episodes).
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from prism_marl import envs
from prism_marl.envs.python import base, pettingzoo, team
from prism_marl.envs.python.rows import PythonRows
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.monitor import Quiet
from prism_marl.runs import runner
from prism_marl.runs.machine import configure_jax, describe_machine
from prism_marl.runs.rows import Rows
from prism_marl.storage.files import HeldFolder

EVERY = 1_000  # steps of a period
SETTLING = 8  # periods that are not counted: programs are compiled and learning begins
AGENTS, OBSERVED = 4, 24
TINY = {"network.width": "16", "learner.embed": "8", "learner.hypernet": "8", "learner.batch": "8"}
GAMES = {"spaces": "cheap/x", "particles": "mpe2/simple_spread_v3?max_cycles=25", "foraging": "lbforaging/6x6-3p-2f"}
PARTS = ["folder", *GAMES]


class Cheap:
    """Observations that were made before, and no rules."""

    possible_agents = tuple(f"agent {n}" for n in range(AGENTS))
    max_cycles = 25

    def __init__(self) -> None:
        from gymnasium import spaces

        self.agents: list[str] = []
        self.clock = 0
        self._space, self._actions = spaces.Box(-1, 1, (OBSERVED,), np.float32), spaces.Discrete(5)
        self._seen = {agent: np.full(OBSERVED, 0.5, np.float32) for agent in self.possible_agents}
        self._infos = {agent: {"action_mask": np.ones(5, np.int8)} for agent in self.possible_agents}
        self._rewards = dict.fromkeys(self.possible_agents, 0.25)

    def observation_space(self, agent: str) -> Any:
        return self._space

    def action_space(self, agent: str) -> Any:
        return self._actions

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.clock = list(self.possible_agents), 0
        return self._seen, self._infos

    def step(self, actions: Any) -> Any:
        self.clock += 1
        over = dict.fromkeys(self.possible_agents, self.clock >= self.max_cycles)
        self.agents = [] if over["agent 0"] else self.agents
        return self._seen, self._rewards, dict.fromkeys(self.possible_agents, False), over, self._infos

    def close(self) -> None:
        pass


def unchecked_box(dtype: Any, shape: Any, value: Any) -> np.ndarray:
    return np.asarray(value, np.float32)


def unchecked_flags(value: Any, shape: Any) -> np.ndarray:
    return np.asarray(value).astype(bool)


def unchecked_rewards(self: Any, rewards: Any) -> tuple[np.ndarray, float]:
    each = np.asarray([*rewards.values()])
    return each, float(sum(each.tolist()))


def unchecked_see(self: Any, row: int, obs: Any) -> None:
    for held, new in zip(self._seen, obs, strict=True):
        held[row] = new


UNCHECKED = [
    (team.Team, "known", lambda self, what, given: None),
    (team.Team, "present", lambda self, playing: list(playing)),
    (team.Team, "rewards", unchecked_rewards),
    (team, "box", unchecked_box),
    (team, "flags", unchecked_flags),
    (team.Team, "_each_has_one", lambda self, legal: True),
    (base, "_numbers", lambda what, value: np.asarray(value, np.float32)),
    (PythonRows, "_see", unchecked_see),
]  # of games: the same work without a look at what is given
UNLOCKED = [(HeldFolder, "check", lambda self: None), (Rows, "_refuse_changes", lambda self, size: None)]


@contextlib.contextmanager
def without_checks(part: str) -> Iterator[None]:
    """Everything but the checks of one part."""
    with contextlib.ExitStack() as stack:
        for owner, name, instead in UNLOCKED if part == "folder" else UNCHECKED:
            stack.enter_context(mock.patch.object(owner, name, instead))
        yield


@contextlib.contextmanager
def timed_checks(seconds: list[float]) -> Iterator[None]:
    """Notes how long every comparison of the lock takes."""
    check = HeldFolder.check

    def timed(self: HeldFolder) -> None:
        begun = time.perf_counter()
        check(self)
        seconds.append(time.perf_counter() - begun)

    with mock.patch.object(HeldFolder, "check", timed):
        yield


class Alternating(Quiet):
    """Turns the checks on or off after every evaluation, and notes how long each period took."""

    def __init__(self, part: str) -> None:
        self.part, self.stack, self.off = part, contextlib.ExitStack(), False
        self.begun, self.seconds = (0.0, 0.0), {False: [], True: []}
        self.periods, self.dice = 0, np.random.default_rng(0)
        self.checks: list[float] = []  # seconds of each look at the lock

    def recorded(self, folder: Path) -> None:
        now = time.process_time(), time.perf_counter()
        if self.periods >= SETTLING:
            self.seconds[self.off].append([after - before for before, after in zip(self.begun, now, strict=True)])
        self.periods += 1
        self.stack.close()
        self.off = not self.off if self.periods % 2 else bool(self.dice.integers(2))
        checks = contextlib.nullcontext() if self.part in GAMES else timed_checks(self.checks)
        self.stack.enter_context(without_checks(self.part) if self.off else checks)
        self.begun = time.process_time(), time.perf_counter()


def experiment(part: str, periods: int) -> Experiment:
    """The paper's settings in JAX, with several evaluations a second; a tiny network for games in Python."""
    if part == "folder":
        made = preset("lbf/10x10-3p-3f", "prism").with_option("run.eval_episodes", "4")
    else:
        made = preset("roles/2", "fups").changed(task=GAMES[part])
        for path, text in {**TINY, "run.envs": "4", "run.eval_episodes": "4", "run.patience": "0"}.items():
            made = made.with_option(path, text)
    settings = {"run.steps": EVERY * periods, "run.eval_every": EVERY, "run.seeds": 1, "run.measures": 0}
    for path, value in settings.items():
        made = made.with_option(path, str(value))
    return made


def ratio(off: np.ndarray, on: np.ndarray) -> list[float]:
    """The median of the ratios of neighbours, and the interval of 90% of what resampled pairs give."""
    pairs = off / on
    drawn = np.random.default_rng(0).choice(pairs, (2_000, pairs.size))
    return [round(float(x), 4) for x in (np.median(pairs), *np.quantile(np.median(drawn, axis=1), [0.05, 0.95]))]


def alone(part: str, blocks: int = 80) -> list[float]:
    """Microseconds of a step of one game without any training, with checks and without, and what the checks take: two
    lower quartiles, which other programs disturb least, and the median difference of equal episodes."""
    rows = envs.make_rows(GAMES[part], 1)
    spec, seconds = rows.spec, {False: [], True: []}
    actions = np.random.default_rng(0).integers(0, spec.actions, (spec.horizon, 1, spec.agents)).astype(np.int32)
    for block in range(2 * blocks):
        off = block % 4 in (1, 2)
        with without_checks(part) if off else contextlib.nullcontext():
            for number in range(5):
                rows.reset(np.arange(1), np.array([5 * (block // 2) + number]))
                begun = time.perf_counter()
                for action in actions[:25]:
                    rows.step(action)
                if number:  # the interpreter gets used to what has been replaced
                    seconds[off].append((time.perf_counter() - begun) / 25 * 1e6)
    rows.close()
    on, off = (np.array(seconds[which]) for which in (False, True))
    return [round(float(x), 2) for x in (np.quantile(on, 0.25), np.quantile(off, 0.25), np.median(on - off))]


def measure(part: str, periods: int) -> dict[str, Any]:
    """One run."""
    watch = Alternating(part)
    with tempfile.TemporaryDirectory() as place, watch.stack:
        runner.run(experiment(part, periods), Path(place) / "run", watch)
    pairs = min(len(periods) for periods in watch.seconds.values())
    on, off = (np.array(watch.seconds[which][:pairs]) for which in (False, True))
    row = {
        "part": part,
        "pairs": pairs,
        "ratio": ratio(off[:, 0], on[:, 0]),
        "wall": ratio(off[:, 1], on[:, 1]),
        "microseconds": round(float(np.median(on[:, 0])) / EVERY * 1e6, 1),
    }
    if part in GAMES:
        row["game_alone"] = alone(part)
    else:
        row["share_of_lock_checks"] = float(f"{np.sum(watch.checks) / np.sum(on[:, 1]):.2g}")
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--periods", type=int, default=60)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--out", type=Path, default=Path("runs/checks.json"))
    options = parser.parse_args()
    configure_jax()
    make = lambda variant: pettingzoo.PettingZoo("cheap/x", Cheap(), 25)  # noqa: E731
    envs.register("cheap", envs.Family("cheap/<x>", ("x",), "for a benchmark", python=make))
    rows = []
    for part in options.parts:
        rows.append(measure(part, options.periods))
        print(json.dumps(rows[-1]), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
