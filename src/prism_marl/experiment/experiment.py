"""One experiment: everything that decides its numbers, as frozen data that goes to JSON and comes back."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from prism_marl import sharing
from prism_marl.envs import describe
from prism_marl.errors import UserError, nearest
from prism_marl.experiment import config
from prism_marl.learners import LEARNERS, Settings
from prism_marl.sharing import Sharing
from prism_marl.storage.files import parse_object

FORMAT = 1  # of config.json, and the major version that reads it: see docs/release.md
MOST_ROWS = 100_000  # evaluations of all seeds together: some 50 MB in each file of rows
LARGEST = {int: 2**31 - 1, float: 3.4e38}  # what the compiled program can hold


@dataclass(frozen=True)
class Net:
    """Size of the agent network."""

    width: int = 64  # hidden units of the agent network


@dataclass(frozen=True)
class Run:
    """How long, how often, how many."""

    steps: int = 3_000_000  # environment steps of each seed, including random steps before learning
    seeds: int = 1  # independent runs, trained side by side in one program
    seed: int = 0  # number of the first seed; the others count up from it
    envs: int = 1  # batched environments: how many each seed steps side by side
    eval_every: int = 50_000  # environment steps between evaluations
    eval_episodes: int = 100  # greedy episodes for each evaluation
    eval_rule: Literal["learner", "exact", "first"] = field(  # exactly this number, first to end, or learner's default
        default="learner", metadata={"since": 2}
    )
    measures: int = field(  # how often a run measures how far its agents differ; 0 = never
        default=20, metadata={"since": 2}
    )
    save_every: int = 1  # evaluations between checkpoints; the end and Ctrl-C always write one
    patience: float = 300.0  # seconds to wait for a PettingZoo environment's process; 0 = run it in this process
    extended_from: tuple[int, ...] = field(  # budgets with which the run had ended before it was extended
        default=(), metadata={"since": 2, "recorded": True}
    )

    @property
    def evaluations(self) -> int:
        """Number 0 is before training, number k at k times ``eval_every`` steps, the last at the end."""
        return math.ceil(self.steps / self.eval_every) + 1

    def measured(self, evaluation: int) -> bool:
        """Whether it is measured at an evaluation how far agents differ."""
        last = evaluation == self.evaluations - 1
        return self.measures > 0 and (last or evaluation % math.ceil(self.evaluations / self.measures) == 0)


@dataclass(frozen=True)
class Start:
    """Where the agents' networks begin, if not fresh: ``runs.warm_start`` records it."""

    digest: str = field(default="", metadata={"recorded": True})  # of the networks in ``start.safetensors``
    freeze: Literal["nothing", "shared"] = field(default="nothing", metadata={"recorded": True})  # what does not learn


@dataclass(frozen=True)
class Experiment:
    """A task, a sharing method, a learner, a network and a schedule."""

    task: str
    sharing: Sharing
    learner: Settings
    network: Net = Net()
    run: Run = Run()
    start: Start = field(default=Start(), metadata={"since": 2})

    def validate(self) -> None:
        """Fail before anything is compiled or written."""
        spec = describe(self.task)
        checks = [
            ("network.width", self.network.width, 1, 16384),
            ("run.steps", self.run.steps, 1, 2 * 10**9),
            ("run.seeds", self.run.seeds, 1, 4096),
            ("run.seed", self.run.seed, 0, 2**31 - 1),
            ("run.envs", self.run.envs, 1, 65536),
            ("run.eval_every", self.run.eval_every, 1, 2 * 10**9),
            ("run.eval_episodes", self.run.eval_episodes, 1, 10**6),
            ("run.measures", self.run.measures, 0, MOST_ROWS),
            ("run.save_every", self.run.save_every, 1, 10**9),
            ("run.patience", self.run.patience, 0, 10**6),
        ]
        for path, value, low, high in checks:
            if not low <= value <= high:
                near = min(max(value, low), high)
                raise UserError(f"{path}: {value} is outside {low} to {high}; the nearest valid value is {near}")
        if self.run.evaluations * self.run.seeds > MOST_ROWS:
            near = math.ceil(self.run.steps / max(MOST_ROWS // self.run.seeds - 1, 1))
            raise UserError(
                f"run.eval_every: {self.run.eval_every} makes {self.run.evaluations:,} evaluations of {self.run.seeds} "
                f"seeds, and a run folder takes {MOST_ROWS:,} rows; the nearest valid value is {near}"
            )
        for path, value, _ in config.options(self):
            if type(value) in LARGEST and abs(value) > LARGEST[type(value)]:
                raise UserError(f"{path}: {value} is too large; training counts in 32 bits")
        self.sharing.validate()
        self.sharing.validate_team(spec.agents, spec.roles)
        self.learner.validate(spec, self.run.envs)
        random = 0 if getattr(self.learner, "warmup_on_top", False) else getattr(self.learner, "warmup", 0)
        if random >= self.run.steps:
            raise UserError(
                f"learner.warmup: {random:,} random steps leave nothing of run.steps ({self.run.steps:,}) to learn in; "
                f"lower it or raise run.steps above {random:,}"
            )
        identities = self.sharing.identities(spec.agents, spec.roles)
        if self.sharing.by_role() and identities < 2:
            name = self.sharing.role_setting
            raise UserError(f"sharing.{name}: '{self.task}' has a single role; use {name} per agent: 'agent'")

    def warnings(self) -> list[str]:
        """Sentences about settings that are valid but keep this run from learning as it could."""
        found = [self.learner.warning(self.run.steps)]
        if self.sharing.pretraining_steps() >= self.run.steps:
            found = [
                f"sharing.pretraining: {self.sharing.pretraining_steps():,} random steps come before learning and the "
                f"run has {self.run.steps:,}, so nothing is learned; lower --sharing.pretraining or raise --steps"
            ]
        return [sentence for sentence in found if sentence]

    def to_json(self) -> str:
        """Readable, stable text."""
        return json.dumps({"format": FORMAT, **config.to_dict(self)}, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> "Experiment":
        """Rebuild from ``to_json``; every wrong field is named."""
        try:
            data = parse_object(text)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"config.json: this is not JSON ({type(error).__name__}); restore it or use a new folder"
            ) from None
        if not isinstance(data, dict):
            raise UserError("config.json: expected an object with fields")
        found = data.pop("format", None)
        if type(found) is int and found > FORMAT:
            raise UserError(
                f"config.json: format {found} is of a newer version of prism-marl, and this one reads format {FORMAT}; "
                f"update prism-marl to {found}.0 or newer, or use a new folder"
            )
        if found != FORMAT:
            raise UserError(
                f"config.json: format {found!r} cannot be read by this version (it reads {FORMAT}); use a new folder"
            )
        return Experiment(
            task=config.coerce(data.pop("task", None), str, "task"),
            sharing=_tagged(data.pop("sharing", None), "sharing", "method", sharing.METHODS),
            learner=_tagged(data.pop("learner", None), "learner", "algorithm", LEARNERS),
            network=config.from_dict(Net, data.pop("network", {}), "network"),
            run=config.from_dict(Run, data.pop("run", {}), "run"),
            start=config.from_dict(Start, data.pop("start", {}), "start"),
            **_nothing_left(data),
        )

    def folder(self, root: Path) -> Path:
        """Equal experiments share a folder, different ones never do."""
        text = json.dumps({"format": FORMAT, **config.to_dict(self, digest=True)}, indent=2) + "\n"
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return root / self.task.replace("/", "-") / f"{self.sharing.method}-{digest}"

    def with_option(self, path: str, text: str) -> "Experiment":
        """A copy with one field replaced by a command-line word."""
        return config.override(self, path, text)

    def changed(self, **fields: Any) -> "Experiment":
        """A copy with some parts replaced."""
        return dataclasses.replace(self, **fields)


def _tagged(data: Any, path: str, tag: str, known: dict[str, Any]) -> Any:
    """Pick the class by the tag inside the object, then read the rest of the fields into it."""
    if not isinstance(data, dict) or not isinstance(data.get(tag), str):
        raise UserError(f"{path}.{tag}: this field is missing; {nearest('', known)}")
    if data[tag] not in known:
        raise UserError(f"{path}.{tag}: there is no '{data[tag]}'; {nearest(data[tag], known)}")
    return config.from_dict(known[data[tag]], data, path)


def _nothing_left(data: dict[str, Any]) -> dict[str, Any]:
    for name in data:
        known = [field.name for field in dataclasses.fields(Experiment)]
        raise UserError(f"{name}: there is no such field; {nearest(name, known)}")
    return {}
