"""What do the checks cost that keep a run from writing or learning something wrong?

    python benchmarks/checks.py [--periods 60] [--out runs/checks.json]

Two runs, each with the checks turned on and off from one evaluation to the next, so that both halves meet the same
machine. "folder" is training in JAX: the lock of the folder and the size of the rows are compared before every write.
"spaces" is a game in Python that costs next to nothing: every observation, mask and reward is compared with what the
game declares. A ratio is the median time of a period without checks divided by that with them: 1 is free of charge. The
checks of the folder are also timed one by one, since they are far below what a ratio can show.
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
from prism_marl.envs.python import pettingzoo
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.monitor import Quiet
from prism_marl.runs import runner
from prism_marl.runs.machine import configure_jax, describe_machine
from prism_marl.runs.rows import Rows
from prism_marl.storage.files import HeldFolder

SETTLING = 6  # periods that are not counted: programs are compiled and learning begins
AGENTS, OBSERVED = 4, 24
TINY = {"network.width": "16", "learner.embed": "8", "learner.hypernet": "8", "learner.batch": "8"}


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


def unchecked_flatten(spaces: Any, space: Any, value: Any) -> np.ndarray:
    return np.asarray(value, np.float32).reshape(-1)


def unchecked_legal(self: Any, index: int, agent: Any, mask: Any) -> np.ndarray:
    legal = np.zeros(self.spec.actions, bool)
    legal[: self._sizes[index]] = np.asarray(mask, bool)
    return legal


@contextlib.contextmanager
def without_checks(part: str) -> Iterator[None]:
    """What the checks of one part are replaced by: the same work without a look at what is given."""
    with contextlib.ExitStack() as stack:
        if part == "folder":
            stack.enter_context(mock.patch.object(HeldFolder, "check", lambda self: None))
            stack.enter_context(mock.patch.object(Rows, "_refuse_changes", lambda self, size: None))
        else:
            game = pettingzoo.PettingZoo
            stack.enter_context(mock.patch.object(pettingzoo, "flatten", unchecked_flatten))
            stack.enter_context(mock.patch.object(game, "_known", lambda self, what, given: None))
            stack.enter_context(mock.patch.object(game, "_legal", unchecked_legal))
            stack.enter_context(mock.patch.object(game, "_rewards", lambda self, rewards: rewards))
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
    """Turns the checks off after one evaluation and on again after the next, and notes how long each period took."""

    def __init__(self, part: str) -> None:
        self.part, self.stack, self.off = part, contextlib.ExitStack(), False
        self.begun, self.seconds = 0.0, {False: [], True: []}
        self.periods = 0
        self.checks: list[float] = []  # seconds of each look at the lock

    def recorded(self, folder: Path) -> None:
        now = time.perf_counter()
        if self.periods > SETTLING:
            self.seconds[self.off].append(now - self.begun)
        self.periods += 1
        self.stack.close()
        self.off = not self.off
        self.stack.enter_context(without_checks(self.part) if self.off else timed_checks(self.checks))
        self.begun = time.perf_counter()


def experiment(part: str, periods: int) -> Experiment:
    """The paper's settings in JAX, with several evaluations a second; a tiny network for the game in Python."""
    if part == "folder":
        made, every = preset("lbf/10x10-3p-3f", "prism").with_option("run.eval_episodes", "4"), 2_000
    else:
        made, every = preset("roles/2", "fups").changed(task="cheap/x"), 2_000
        for path, text in {**TINY, "run.envs": "4", "run.eval_episodes": "4", "run.patience": "0"}.items():
            made = made.with_option(path, text)
    settings = {"run.steps": every * periods, "run.eval_every": every, "run.seeds": 1}
    for path, value in settings.items():
        made = made.with_option(path, str(value))
    return made


def measure(part: str, periods: int) -> dict[str, Any]:
    """One run."""
    watch = Alternating(part)
    with tempfile.TemporaryDirectory() as place, watch.stack:
        runner.run(experiment(part, periods), Path(place) / "run", watch)
    on, off = (np.array(watch.seconds[which]) for which in (False, True))
    ratios = np.median(off) / np.median(on)
    return {
        "part": part,
        "periods": [on.size, off.size],
        "seconds_with": round(float(np.median(on)), 4),
        "seconds_without": round(float(np.median(off)), 4),
        "ratio": round(float(ratios), 4),
        "share_of_lock_checks": float(f"{np.sum(watch.checks) / np.sum(on):.2g}"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--periods", type=int, default=60)
    parser.add_argument("--parts", nargs="+", default=["folder", "spaces"], choices=["folder", "spaces"])
    parser.add_argument("--out", type=Path, default=Path("runs/checks.json"))
    options = parser.parse_args()
    configure_jax()
    make = lambda variant: pettingzoo.PettingZoo("cheap/x", Cheap(), 25)  # noqa: E731
    envs.register("cheap", envs.Family("cheap/<x>", ("x",), "for a benchmark", python=make))
    rows = [measure(part, options.periods) for part in options.parts]
    for row in rows:
        print(json.dumps(row), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
