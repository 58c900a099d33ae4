"""The whole training state in one file: safetensors with a checksum, written atomically.

The checksum covers the arrays, the notes, the number of the checkpoint and its owner. So a file that was copied over
another checkpoint is detected just as a damaged one.
"""

import contextlib
import json
import operator
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from prism_marl.errors import UserError
from prism_marl.storage.files import HeldFolder, check_plain, write_atomically
from prism_marl.storage.sealed import Pieces, digest, spans
from prism_marl.training.state import PartialArray

FORMAT = "5"
KEEP = 2  # the newest and the one before, so that one damaged file does not end the run

KEY = 32  # bytes of a random key, at most
SPARE = 2**24  # bytes that a checkpoint may have above what fits, so that the sentence can say what is wrong with it
UNREADABLE = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError, EOFError, RecursionError, MemoryError),
    safetensors.SafetensorError,
)

State = TypeVar("State")


class Writer:
    """Writes checkpoints of one owner while training goes on: arrays are hashed and written in a thread."""

    def __init__(self, folder: Path, owner: str = "", inside: HeldFolder | None = None):
        self.folder, self.owner, self.inside = folder, owner, inside
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._pending: Future[Path] | None = None

    def save(self, number: int, tensors: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
        """Start to write; waits only for the write before this one. The arrays must not change afterwards."""
        self.wait()
        self._pending = self._pool.submit(save, self.folder, number, tensors, notes, self.owner, self.inside)

    def wait(self) -> None:
        """Wait until the last write is on the disk. If it has failed, its error is raised here."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Finish the last write. Needed also after an error, because the lock on the folder is released afterwards."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()


def save(
    folder: Path,
    number: int,
    tensors: dict[str, np.ndarray],
    notes: dict[str, Any],
    owner: str = "",
    inside: HeldFolder | None = None,
) -> Path:
    """Write checkpoint ``number`` of an owner and delete all but the newest ``KEEP``."""
    written = json.dumps({"number": number, "owner": owner, "notes": notes})
    metadata = {"format": FORMAT, "digest": digest(tensors, written), "content": written}
    path = folder / f"{number:08d}.safetensors"
    write_atomically(path, safetensors.numpy.save(tensors, metadata=metadata), inside)
    for old in paths(folder)[KEEP:]:
        with contextlib.suppress(OSError):  # the new one is safe; an old one only takes space
            old.unlink(missing_ok=True)
    return path


def paths(folder: Path) -> list[Path]:
    """Checkpoints, newest first."""
    return sorted(
        (p for p in folder.glob("*.safetensors") if p.stem.isdecimal()), key=lambda p: int(p.stem), reverse=True
    )


def load_newest(
    folder: Path,
    template: State,
    owner: str = "",
    complain: Callable[[dict[str, Any]], str | None] = lambda notes: None,
    without: str = "",
) -> tuple[State, dict[str, Any], list[str]] | None:
    """The newest checkpoint that can be used, its notes, and a sentence for each newer one that cannot.

    ``complain`` gets the notes and returns why the checkpoint cannot be used, or None. Arrays whose names begin with
    ``without`` are not in the template: they are checked, and never held in memory.
    """
    complaints: list[str] = []
    for path in paths(folder):
        try:
            state, notes = load(path, template, owner, without)
        except UserError as error:
            complaints.append(str(error))
            continue
        complaint = complain(notes)
        if complaint is None:
            return state, notes, complaints
        complaints.append(f"checkpoint {path.name} cannot be continued: {complaint}")
    if complaints:
        raise UserError(f"{complaints[0]}; no other checkpoint in {folder} can be used: start in a new folder", code=1)
    return None


def load(path: Path, template: State, owner: str = "", without: str = "") -> tuple[State, dict[str, Any]]:
    """Read one checkpoint of an owner into the structure of ``template`` (arrays or shapes)."""
    try:
        with safetensors.safe_open(check_plain(path, path.parent.parent), framework="numpy") as file:
            metadata = file.metadata() or {}
            _check_format(metadata, path.name)
            written = metadata.get("content", "")
            places = spans(path)
            passed = {name: place for name, place in places.items() if without and name.startswith(without)}
            _check_room(sum(end - begin for name, (begin, end) in places.items() if name not in passed), template, path)
            tensors = {name: file.get_tensor(name) for name in places if name not in passed}
            found = digest(tensors | {name: Pieces(file, name, path, at) for name, at in passed.items()}, written)
    except UNREADABLE as error:
        raise UserError(f"checkpoint {path.name} cannot be read ({type(error).__name__})", code=1) from None
    if metadata.get("digest") != found:
        raise UserError(f"checkpoint {path.name} is damaged: its checksum does not match", code=1)
    try:
        number, found_owner, notes = operator.itemgetter("number", "owner", "notes")(json.loads(written))
        name = f"{number:08d}"
    except (ValueError, RecursionError, TypeError, KeyError):
        raise UserError(f"checkpoint {path.name} does not name its owner", code=1) from None
    if name != path.stem:
        raise UserError(f"checkpoint {path.name} was written as number {name} and renamed", code=1)
    if found_owner != owner:
        raise UserError(f"checkpoint {path.name} belongs to another experiment", code=1)
    return unflatten(tensors, template, path.name), notes


def _check_format(metadata: dict[str, str], name: str) -> None:
    held = str(metadata.get("format"))
    if held != FORMAT:
        newer = held.isascii() and held.isdigit() and len(held) < 9 and int(held) > int(FORMAT)
        remedy = "; a newer prism-marl wrote it: update prism-marl" if newer else ""
        raise UserError(f"checkpoint {name} has format {held}, this version reads {FORMAT}{remedy}", code=1)


def _check_room(claimed: int, template: Any, path: Path) -> None:
    """Raise, before memory is taken, where arrays have many more bytes than the state that they are to be."""
    expected = sum(_bytes(leaf) for leaf in jax.tree.leaves(template))
    if claimed > 2 * expected + SPARE:
        raise UserError(
            f"checkpoint {path.name} does not fit this experiment: its arrays have {claimed:,} bytes instead of "
            f"{expected:,}",
            code=1,
        )


def _bytes(leaf: Any) -> int:
    return leaf.size * (KEY if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.dtype(leaf.dtype).itemsize)


def flatten(state: Any) -> dict[str, np.ndarray]:
    """Every array by its path in the state; random keys as integers."""
    return {_name(path): _on_host(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)}


def unflatten(tensors: dict[str, np.ndarray], template: State, source: str) -> State:
    """The inverse of ``flatten``. Raises, with its name, if an array is missing, unknown or of another shape."""
    expected = jax.tree_util.tree_leaves_with_path(template)
    names = [_name(path) for path, _ in expected]
    unmatched = sorted(set(tensors) ^ set(names))
    if unmatched:
        raise UserError(
            f"checkpoint {source} does not fit this experiment: '{unmatched[0]}' has no counterpart", code=1
        )
    leaves = []
    for name, (_, leaf) in zip(names, expected, strict=True):
        value = leaf.fill(tensors[name]) if isinstance(leaf, PartialArray) else tensors[name]
        key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        shape, dtype = (value.shape[: len(leaf.shape)], value.dtype) if key else (value.shape, value.dtype)
        if tuple(shape) != tuple(leaf.shape) or (not key and dtype != leaf.dtype):
            raise UserError(
                f"checkpoint {source} does not fit this experiment: '{name}' is {dtype}{list(shape)}, "
                f"expected {leaf.dtype}{list(leaf.shape)}",
                code=1,
            )
        if isinstance(leaf, np.ndarray):  # stays on the host, because a device may not have its dtype
            leaves.append(value)
        else:
            leaves.append(jax.random.wrap_key_data(jnp.asarray(value)) if key else jnp.asarray(value))
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def remove_leftovers(folder: Path) -> None:
    """Delete temporary files of writers that were killed; the caller must hold the folder's lock. Deletes only names
    that ``files.replacing`` gives, and only in folders of a run, because the folder may hold other files."""
    for part in (*folder.glob(".*.[0-9]*.tmp"), *folder.glob("*/.*.[0-9]*.tmp")):
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _on_host(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, np.ndarray):
        return leaf  # no copy: it is never written to, and a replay buffer may be most of the memory
    return np.array(jax.device_get(leaf))  # a copy, because on a CPU the next step reuses the original's memory


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
