"""The layers of Prism in a run's newest checkpoint, read without JAX, for other frameworks."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from prism_marl.errors import UserError
from prism_marl.storage.files import check_plain, parse_json, read_text
from prism_marl.storage.sealed import Pieces, digest, spans

ARRAYS = ("U", "s", "V", "bias", "threshold")
LARGEST = 2**29  # bytes of the layers of all seeds
DAMAGED = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, EOFError, RecursionError, MemoryError),
    safetensors.SafetensorError,
)
_OF_AGENTS = re.compile(r"seeds\.state\.(?:online|actor)\.agent\.(.+)\.threshold")  # not targets, critics, optimisers


@dataclass(frozen=True)
class SavedLayer:
    """What a layer of Prism is made of, under the names that it has in training."""

    U: np.ndarray  # [o, r]
    s: np.ndarray  # [r]
    V: np.ndarray  # [i, r]
    bias: np.ndarray  # [o]
    threshold: np.ndarray  # [m, k]
    settings: dict[str, Any]  # of the sharing method
    layer_weight: float


def saved_layers(run: str | Path, seed: int | None = None) -> dict[str, SavedLayer]:
    """The layers of the agents' network by name, of one seed of a run folder, by default the first."""
    folder = Path(run)
    found = sorted(path for path in (folder / "checkpoints").glob("*.safetensors") if path.stem.isdecimal())
    if not found:
        raise UserError(f"{folder} has no checkpoint; pass the folder of a run that has reached its first evaluation")
    try:
        config = parse_json(read_text(folder / "config.json", folder))
        settings, first, seeds = config["sharing"], int(config["run"]["seed"]), int(config["run"]["seeds"])
        index = 0 if seed is None else seed - first
        tensors = _sealed(found[-1], folder)
        if not 0 <= index < seeds:
            raise UserError(f"seed: this run has seeds {first} to {first + seeds - 1}, not {seed}")
        layers = {}
        for name, stem in _places(tensors).items():
            arrays = {part: tensors[stem + part][index] for part in ARRAYS}
            weight = float(settings.get("layer_base", 1.0)) ** len(layers)  # fc1, fc2, ... count from 0
            layers[name] = SavedLayer(**arrays, settings=settings, layer_weight=weight)
    except DAMAGED as error:
        raise UserError(f"{folder} cannot be read as a run ({type(error).__name__}); copy it again", code=1) from None
    if not layers:
        raise UserError(f"{folder}: its agents have no layer of Prism; pass a run with --sharing prism")
    return layers


def _sealed(path: Path, folder: Path) -> dict[str, np.ndarray]:
    """The layers' arrays in a checkpoint whose checksum is right; all else is checked and not held in memory."""
    with safetensors.safe_open(check_plain(path, folder), framework="numpy") as file:
        metadata, places = file.metadata() or {}, spans(path)
        wanted = {stem + part for stem in _places(places).values() for part in ARRAYS}
        if sum(places[name][1] - places[name][0] for name in wanted) > LARGEST:
            raise UserError(f"checkpoint {path.name} has layers of more than {LARGEST // 2**20} MiB; pass another run")
        tensors = {name: file.get_tensor(name) for name in wanted}
        whole = tensors | {name: Pieces(file, name, path, at) for name, at in places.items() if name not in wanted}
        if metadata.get("digest") != digest(whole, metadata.get("content", "")):
            raise UserError(f"checkpoint {path.name} is damaged: its checksum does not match", code=1)
    return tensors


def _places(names: Collection[str]) -> dict[str, str]:
    """What the names of each layer's arrays begin with, by the name of the layer."""
    found = {
        match[1]: match[0].removesuffix("threshold") for match in map(_OF_AGENTS.fullmatch, sorted(names)) if match
    }
    return {name: stem for name, stem in found.items() if all(stem + part in names for part in ARRAYS)}
