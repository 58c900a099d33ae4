"""Reads the spectra, replays and footprint of a run folder.

Every reader returns what it can read, and appends a sentence to ``notes`` for what it left out.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from prism_marl.runs.archive import read_members
from prism_marl.scene import Scene, read_scene
from prism_marl.storage.files import (
    LARGEST_ROWS,
    LARGEST_TEXT,
    StrangeFileError,
    check_plain,
    number,
    parse_json,
    read_text,
)

FloatArray = NDArray[np.float64]

REPLAY_FRAMES = 201  # most frames of a replay: all of an episode of 200 steps
REPLAY_SHAPES = 20_000  # most shapes in all its frames, about 1 MB of a page: swimmers have hundreds of rods

LARGEST_REPLAY = 2**24  # bytes of a file; ours have at most 6 MB
LARGEST_FRAME = 2**25  # bytes of the spectra at one evaluation
LARGEST_SPECTRA = 2**26  # bytes of those that are read together; a page shows 2 MB
MOST_LAYERS = 64  # with a spectrum
MOST_PAIRS = 2**29  # seeds x pairs of identities x directions, which are compared: a thousand agents are a fifth of it
MOST_FOOTPRINTS = 64  # rows
MOST_TEAMS = 8  # sizes of teams in each

UNREADABLE = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError),
    SafetensorError,
)


@dataclass(frozen=True)
class LayerSpectra:
    """The masked singular values of a layer for each identity, over training."""

    name: str
    common: int  # this many directions, the first ones, are on for every identity
    spectrum: NDArray[np.float32]  # [evaluations, seeds, identities, directions]
    mask: NDArray[np.bool_]  # same shape


@dataclass(frozen=True)
class Spectra:
    """The spectra files of one run."""

    steps: FloatArray  # [evaluations], mean over seeds
    layers: tuple[LayerSpectra, ...]


@dataclass(frozen=True)
class Replay:
    """One recorded episode."""

    title: str
    score: float
    frames: tuple[Scene, ...]


@dataclass(frozen=True)
class FootprintRow:
    """The size of one sharing method on the run's task and width."""

    method: str
    label: str
    parameters: float
    shared: float
    private: float
    bytes: float
    teams: tuple[tuple[int, float, float], ...] = ()  # agents, parameters and private ones, as a team grows


def evenly_spaced(count: int, limit: int) -> NDArray[np.int64]:
    """At most ``limit`` indices below ``count``, evenly spaced, including the first and the last."""
    if limit < 2:
        return np.arange(count)[-limit:]
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(int))


def worth_keeping(frames: Sequence[Scene]) -> list[Scene]:
    """The frames of a replay; evenly spaced ones if there are too many for a page."""
    most = max((len(frame.shapes) for frame in frames), default=0)
    limit = min(REPLAY_FRAMES, max(2, REPLAY_SHAPES // max(most, 1)))
    return [frames[index] for index in evenly_spaced(len(frames), limit)]


def read_json(path: Path, root: Path, notes: list[str], limit: int = LARGEST_TEXT) -> Any:
    """The content of a file of the run folder ``root``; None if it cannot be read."""
    try:
        return parse_json(read_text(path, root, limit))
    except FileNotFoundError:
        notes.append(f"{path.name} is missing.")
    except StrangeFileError as error:
        notes.append(f"{path.name} {error} and was left out.")
    except UNREADABLE:
        notes.append(f"{path.name} cannot be read and was left out.")
    return None


def load_spectra(folder: Path, seed_steps: Sequence[FloatArray], limit: int, notes: list[str]) -> Spectra | None:
    """The spectra of a run at evenly spaced times. Instead of the folder there may be an archive FOLDER.tar.gz."""
    frames, bad = [], 0
    for stem, read in _spectra_files(folder, limit, notes):
        try:
            frames.append(_parse_spectra(stem, read(), seed_steps))
        except UNREADABLE:
            bad += 1
    if bad:
        notes.append(f"{bad} spectra files cannot be read and were left out.")
    if not frames:
        return None
    shapes = [{name: spectrum.shape for name, (spectrum, _, _) in layers.items()} for _, layers in frames]
    same = [frame for frame, shape in zip(frames, shapes, strict=True) if shape == shapes[-1]]
    if len(same) < len(frames):
        notes.append(f"{len(frames) - len(same)} spectra files have other shapes and were left out.")
    same.sort(key=lambda frame: frame[0])
    layers = tuple(_stack_layer(name, [layers[name] for _, layers in same]) for name in sorted(same[-1][1]))
    return Spectra(np.array([step for step, _ in same]), layers) if layers else None


def _spectra_files(folder: Path, limit: int, notes: list[str]) -> list[tuple[str, Callable[[], bytes]]]:
    """(stem, function that reads it) of the chosen files; empty for methods without a spectrum."""
    files: list[tuple[str, Callable[[], bytes]]]
    files = [(path.stem, partial(_plain_bytes, path, folder.parent)) for path in sorted(folder.glob("*.safetensors"))]
    archive = folder.with_name(f"{folder.name}.tar.gz")
    if not files and archive.is_file():
        return _some(_archived_files(archive, notes), limit)
    sizes = [path.stat().st_size for path in folder.glob("*.safetensors") if path.is_file()]
    return _some(files, min(limit, max(2, LARGEST_SPECTRA // max([*sizes, 1]))))


def _some(files: list[Any], limit: int) -> list[Any]:
    return [files[index] for index in evenly_spaced(len(files), limit)] if files else []


def _plain_bytes(path: Path, root: Path) -> bytes:
    return check_plain(path, root, LARGEST_FRAME).read_bytes()


def _archived_files(archive: Path, notes: list[str]) -> list[tuple[str, Callable[[], bytes]]]:
    """The same from an archive, whose members are read into memory and never unpacked to the disk."""
    try:
        held = read_members(check_plain(archive, archive.parent, LARGEST_ROWS), ".safetensors")
    except UNREADABLE:
        notes.append(f"{archive.name} cannot be read and was left out.")
        return []
    return [(PurePosixPath(name).stem, partial(held.__getitem__, name)) for name in sorted(held, key=PurePosixPath)]


def _parse_spectra(stem: str, data: bytes, seed_steps: Sequence[FloatArray]) -> tuple[float, dict[str, tuple]]:
    """The step of one spectra file and, per layer, (spectrum, mask, common)."""
    tensors = safetensors.numpy.load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = header.get("__metadata__", {})
    layers = {}
    for key in tensors:
        name, _, kind = key.rpartition(".")
        if kind != "spectrum":
            continue
        spectrum, mask = tensors[key], tensors[f"{name}.mask"].astype(bool)
        if spectrum.ndim != 3 or spectrum.shape != mask.shape or spectrum.size == 0:
            raise ValueError("a spectrum is [seeds, identities, directions]")
        if spectrum.size * spectrum.shape[1] > MOST_PAIRS:
            raise ValueError("no team is so large")
        always = int(np.logical_and.accumulate(mask.all(axis=(0, 1))).sum())
        common = min(max(int(metadata.get(f"common.{name}", always)), 0), mask.shape[-1])
        if len(layers) == MOST_LAYERS:
            raise ValueError("no network has so many layers")
        layers[name] = (np.nan_to_num(spectrum.astype(np.float32)), mask, common)
    if "steps" in metadata:
        step = float(np.mean(parse_json(metadata["steps"])))
        if not math.isfinite(step):
            raise ValueError("a step is a number")
        return step, layers
    index = int(stem)
    seen = [steps[index] for steps in seed_steps if index < steps.size]
    return float(np.mean(seen)) if seen else float(index), layers


def _stack_layer(name: str, frames: list[tuple]) -> LayerSpectra:
    spectrum = np.stack([spectrum for spectrum, _, _ in frames])
    mask = np.stack([mask for _, mask, _ in frames])
    return LayerSpectra(name, min(common for _, _, common in frames), spectrum, mask)


def load_replays(folder: Path, notes: list[str], limit: int = 4) -> tuple[tuple[Replay, ...], int]:
    """The first ``limit`` recorded episodes, and the number of files that were not read because of the limit."""
    replays: list[Replay] = []
    paths = sorted(folder.glob("*.json"))
    for index, path in enumerate(paths):
        if len(replays) == limit:
            return tuple(replays), len(paths) - index
        raw = read_json(path, folder.parent, notes, LARGEST_REPLAY)
        try:
            frames = tuple(worth_keeping([read_scene(frame) for frame in raw["frames"]]))
        except UNREADABLE:
            notes.append(f"The replay {path.name} cannot be drawn and was left out.")
            continue
        if frames:
            replays.append(Replay(str(raw.get("title", path.stem))[:300], number(raw.get("return")), frames))
    return tuple(replays), 0


def load_footprint(path: Path, notes: list[str]) -> tuple[FootprintRow, ...]:
    raw = read_json(path, path.parent, notes)
    rows = []
    for row in raw[:MOST_FOOTPRINTS] if isinstance(raw, list) else ():
        if isinstance(row, dict) and number(row.get("parameters")) > 0:
            sizes = [number(row.get(key)) for key in ("parameters", "shared", "private", "bytes")]
            method = str(row.get("method", "unknown"))[:100]
            rows.append(
                FootprintRow(method, str(row.get("label", method))[:100], *sizes, teams=_teams(row.get("teams")))
            )
    return tuple(rows)


def _teams(raw: Any) -> tuple[tuple[int, float, float], ...]:
    """The sizes of larger and smaller teams that a row tells; runs of earlier versions tell none."""
    found = []
    for agents, sizes in itertools.islice(raw.items(), MOST_TEAMS) if isinstance(raw, dict) else ():
        if re.fullmatch("[0-9]{1,6}", str(agents)) and isinstance(sizes, list) and len(sizes) == 2:
            parameters, private = map(number, sizes)
            if parameters > 0:
                found.append((int(agents), parameters, private))
    return tuple(found)


def load_deployment(path: Path, notes: list[str]) -> dict[str, float]:
    """What the policy of one agent costs, as a run notes it at its end; empty before that."""
    raw = read_json(path, path.parent, notes) if path.exists() else None
    found = raw if isinstance(raw, dict) else {}
    return {name: value for name, given in found.items() if math.isfinite(value := number(given)) and value >= 0}
