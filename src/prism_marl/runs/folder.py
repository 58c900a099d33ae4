"""The files of a run folder besides its rows: who may write, whose experiment it is, spectra and replays."""

import contextlib
import fcntl
import functools
import hashlib
import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from prism_marl import __version__, envs
from prism_marl.errors import UserError, storage_error
from prism_marl.experiment import config
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import method_settings
from prism_marl.learners import Settings
from prism_marl.runs import checkpoint, history
from prism_marl.runs.machine import describe_machine, precision
from prism_marl.runs.run_files import worth_keeping
from prism_marl.runs.user_files import explain_unknown_names, record_user_files
from prism_marl.scene import Scene, scene_to_json
from prism_marl.sharing import METHODS, Sharing
from prism_marl.sharing.footprint import Footprint, footprint
from prism_marl.storage.files import LOCK, HeldFolder, StrangeFileError, parse_json, read_text, refuse_links_out
from prism_marl.storage.sealed import serialise
from prism_marl.training.state import TrainState
from prism_marl.training.trainer import Trainer
from prism_marl.types import EnvSpec

MOST_SHOWN = 8  # fields in which two experiments differ
TEAMS = (3, 16, 128)  # agents for which the page tells every method's size besides the team's own number
START = "start.safetensors"  # the networks that a run begins with, where these are another run's
BEFORE_A_RUN = (LOCK, "log.txt", "progress.json", START)  # what may be in a folder before config.json


def refuse_strange_folder(folder: Path, own: Collection[str] = BEFORE_A_RUN) -> None:
    """Raise for a folder that holds files besides ``own`` and no run: training would mix its own with them."""
    if not folder.is_dir() or (folder / "config.json").exists():
        return
    for path in sorted(folder.iterdir()):
        if path.name not in own and not path.name.endswith(".tmp"):
            raise UserError(
                f"--out: {folder} is not empty (it holds '{path.name}') and not a run folder (it has no config.json); "
                "choose a new or empty folder"
            )


@contextlib.contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[HeldFolder]:
    """One process per folder; the lock goes with the process, however it ends. ``patience`` is how many seconds a
    process that is just saving and leaving is waited for."""
    try:
        refuse_strange_folder(folder)
        refuse_links_out(folder)
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("w")
    except OSError as error:
        raise storage_error(error, "choose another --out") from None
    with file:
        until = time.monotonic() + patience
        while not _lock(file):
            if time.monotonic() >= until:
                raise UserError(
                    f"{folder} is in use by another process; wait for it or choose another --out", code=1
                ) from None
            time.sleep(0.1)
        held = HeldFolder(folder, file)
        held.check()  # between opening and locking, too
        yield held


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_config(experiment: Experiment, folder: Path, inside: HeldFolder | None = None) -> None:
    """A folder belongs to one experiment for good."""
    path = folder / "config.json"
    if path.exists():
        refuse_another(load_experiment(folder), experiment, folder)
    else:
        checkpoint.write_atomically(path, experiment.to_json().encode(), inside)
    record_user_files(experiment, folder, inside)
    if not (folder / history.FILE).exists():
        history.begin(folder, machine_facts(experiment), inside)
    if not (folder / "footprint.json").exists():
        rows = json.dumps(footprints(experiment), indent=1) + "\n"
        checkpoint.write_atomically(folder / "footprint.json", rows.encode(), inside)
    _refuse_another_precision(folder)


def machine_facts(experiment: Experiment) -> dict[str, Any]:
    """What computes an experiment here and now."""
    return describe_machine() | {"environment": envs.describe(experiment.task).version}


def refuse_another(held: Experiment, experiment: Experiment, folder: Path) -> None:
    """Raise, with all fields that differ, unless a folder holds this experiment. That it was extended is no difference:
    it is a record, and the steps show it."""
    same = replace(experiment, run=replace(experiment.run, extended_from=held.run.extended_from))
    found = config.differences(held, same)
    if not found:
        return
    shown = [f"{path} is {_shown(old)} there and {_shown(new)} here" for path, old, new in found[:MOST_SHOWN]]
    rest = f" and {len(found) - MOST_SHOWN} more fields" if len(found) > MOST_SHOWN else ""
    longer = [path for path, _, _ in found] == ["run.steps"] and same.run.steps > held.run.steps
    remedy = f", or continue that run with --extend {same.run.steps}" if longer else ""
    raise UserError(f"{folder} holds another experiment: {', '.join(shown)}{rest}; choose another --out{remedy}")


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def extend(folder: Path, steps: int) -> Experiment:
    """Raise the budget of a finished run to ``steps`` and record the one before; the experiment as it is now. Asking
    for the same steps again changes nothing, so that a command can be repeated until it is done."""
    load_experiment(folder)  # before anything is written: it may be no run folder
    with locked(folder) as inside:
        held = load_experiment(folder)
        if steps == held.run.steps:
            return held
        if steps < held.run.steps:
            raise UserError(f"--extend: the run in {folder} has {held.run.steps:,} steps; give a larger total")
        if not (folder / "done").exists():
            raise UserError(
                f"--extend: the run in {folder} has not reached its {held.run.steps:,} steps; "
                "continue it first, with the command that began it"
            )
        record = (*held.run.extended_from, held.run.steps)
        extended = replace(held, run=replace(held.run, steps=steps, extended_from=record))
        extended.validate()
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        content["run"] |= {"steps": steps, "extended_from": list(record)}
        (folder / "done").unlink()  # first: between the two, the run merely has to be continued
        checkpoint.write_atomically(folder / "config.json", (json.dumps(content, indent=2) + "\n").encode(), inside)
        return extended


def _refuse_another_precision(folder: Path) -> None:
    """On a GPU a run is computed in one precision from start to end. A CPU has no choice, and goes on anyway."""
    damaged = (OSError, ValueError, AttributeError, RecursionError, StrangeFileError)
    try:
        began = parse_json(read_text(folder / history.FILE, folder)).get("products")
    except damaged:  # nothing else depends on this file
        return
    if jax.default_backend() != "cpu" and began in ("float32", "tf32") and began != precision():
        way = "with `train --tf32`" if began == "tf32" else "without --tf32"
        raise UserError(
            f"--tf32: the run in {folder} was started with products in {began}, not {precision()}; "
            f"continue it {way}, or choose another --out"
        )


def owner(folder: Path) -> str:
    """What every checkpoint of a folder carries: a digest of the content of its config.json as the run was begun,
    however it is spaced."""
    load_experiment(folder)
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    budgets = content.get("run", {}).pop("extended_from", [])
    if budgets:
        content["run"]["steps"] = budgets[0]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def refuse_lost_checkpoints(folder: Path) -> None:
    """The first checkpoint is on the disk before training begins, so rows of training without one mean a loss."""
    for name in ("train.jsonl", "timing.jsonl"):
        path = folder / name
        if path.exists() and path.stat().st_size:
            raise UserError(
                f"{folder} has training metrics but no checkpoint; put its checkpoints back or use a new folder", code=1
            )


def footprints(experiment: Experiment) -> list[dict[str, Any]]:
    """What this experiment's network would cost with each method, for the page."""
    spec, rows = envs.describe(experiment.task), []
    for method in METHODS:
        sharing = (
            experiment.sharing if method == experiment.sharing.method else method_settings(experiment.task, method)
        )
        size, *more = (
            _size(experiment.learner, sharing, team, experiment.network.width)
            for team in (spec, *(_with_agents(spec, agents) for agents in TEAMS))
        )
        rows.append(
            {
                "method": method,
                "label": sharing.label,
                "parameters": size.parameters,
                "shared": size.shared,
                "private": size.private,
                "bytes": size.bytes,
                "ratio": round(size.ratio, 6),
                "teams": {
                    str(agents): [team.parameters, team.private] for agents, team in zip(TEAMS, more, strict=True)
                },
            }
        )
    return rows


@functools.lru_cache(maxsize=1024)  # many runs of one process have the same networks
def _size(settings: Settings, sharing: Sharing, spec: EnvSpec, width: int) -> Footprint:
    learner = settings.learner(sharing, spec, width=width)
    return footprint(jax.eval_shape(learner.build_agent, jax.random.key(0)))


def _with_agents(spec: EnvSpec, agents: int) -> EnvSpec:
    """The same observations and actions with another number of agents; unit types stay."""
    return replace(spec, agents=agents, places=0, roles=agents if spec.roles == spec.agents else spec.roles)


def load_experiment(folder: Path) -> Experiment:
    """The experiment of a run folder."""
    path = folder / "config.json"
    try:
        text = read_text(path, folder)
    except StrangeFileError as error:
        raise UserError(f"{path} {error}; put the settings themselves in its place") from None
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{folder} is not a run folder: it has no readable config.json") from None
    explain_unknown_names(text, folder)
    try:
        return Experiment.from_json(text)
    except UserError as error:
        if (written := history.version(folder)) and _release(written) > _release(__version__):
            raise UserError(
                f"{folder} was written by prism-marl {written} and this is {__version__}, which cannot read it "
                f"({error}); update prism-marl",
                code=error.code,
            ) from None
        raise


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def write_replay(
    folder: Path, name: str, title: str, total: float, scenes: list[Scene], inside: HeldFolder | None = None
) -> Path:
    """Keep an episode in the run folder, where the page finds it."""
    path = folder / "replays" / f"{name}.json"
    frames = [scene_to_json(scene) for scene in worth_keeping(scenes)]
    content = {"title": title, "return": round(total, 4), "frames": frames}
    checkpoint.write_atomically(path, json.dumps(content).encode(), inside)
    return path


def write_best_replay(trainer: Trainer, state: TrainState, folder: Path, inside: HeldFolder) -> None:
    """A greedy episode of the first seed, for the page: the longest of the best among a few, since an episode that
    begins beside the food shows nothing. Environments without a drawing have none."""
    episodes = [trainer.watch(state, seed=0, number=number) for number in range(8)]
    scenes, total = max(episodes, key=lambda episode: (round(episode[1], 3), len(episode[0])))
    if scenes:
        first = trainer.experiment.run.seed
        write_replay(folder, f"seed-{first}", f"greedy episode, seed {first}", total, scenes, inside)


def write_spectra(
    folder: Path,
    evaluation: int,
    steps: list[int],
    found: Mapping[str, Any],
    common: dict[str, int],
    inside: HeldFolder | None = None,
) -> None:
    """Singular values and masks at one evaluation; ``common`` says how many of each layer everybody uses."""
    tensors, metadata = {}, {"evaluation": str(evaluation), "steps": json.dumps(steps)}
    for name, (values, on) in found.items():
        tensors[f"{name}.spectrum"] = np.ascontiguousarray(values, np.float32)
        tensors[f"{name}.mask"] = np.ascontiguousarray(on, np.uint8)
        metadata[f"common.{name}"] = str(common[name])
    path = folder / "spectra" / f"{evaluation:06d}.safetensors"
    checkpoint.write_atomically(path, serialise(tensors, metadata), inside)
