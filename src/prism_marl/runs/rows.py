"""The row files of a run folder: JSON lines with a checksum."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.errors import UserError
from prism_marl.storage.files import HeldFolder, StrangeFileError, check_plain

ROW_FILES = ("eval", "train", "timing", "diversity")
LATER = {"diversity": [0, hashlib.blake2b(digest_size=16).hexdigest()]}  # files that earlier versions did not write
BOOKKEEPING = ("evaluation", "seed", "step")  # keys of a row that are not measurements


class Rows:
    """An append-only file of JSON lines with its size and checksum. With these a resumed run detects lost rows, and
    removes rows that are newer than its checkpoint."""

    def __init__(self, path: Path, inside: HeldFolder | None = None):
        self.path, self.inside = path, inside
        self._size, self._hash = 0, hashlib.blake2b(digest_size=16)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Write rows and sync them to the disk. The folder is looked at when the file is open: from then on, what
        happens to the folder's name does not matter."""
        text = "".join(json.dumps({k: _finite(v) for k, v in row.items()}) + "\n" for row in rows).encode()
        if self.inside is not None:
            self.inside.check()
        with self._explained(), self.path.open("ab") as file:
            if self.inside is not None:
                self.inside.check()
            self._refuse_changes(os.fstat(file.fileno()).st_size)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(text)
        self._hash.update(text)

    def _refuse_changes(self, size: int) -> None:
        if size != self._size:
            raise UserError(
                f"{self.path} has {size:,} bytes, but {self._size:,} were written: somebody else has changed it while "
                "this run was training; restore it, or choose another --out",
                code=1,
            )

    def seal(self) -> list[Any]:
        """Size and checksum of the rows up to now, which a checkpoint stores."""
        return [self._size, self._hash.hexdigest()]

    def complaint(self, seal: list[Any]) -> str | None:
        """Why the file does not begin with the rows that were sealed; None if it does."""
        size, digest = seal
        found = self._read(size)
        if len(found) < size:
            return f"{self.path.name} has lost rows: {len(found)} of {size} bytes are left"
        if hashlib.blake2b(found, digest_size=16).hexdigest() != digest:
            return f"{self.path.name} does not hold the rows that were written"
        return None

    def cut(self, size: int) -> None:
        """Remove everything after the first ``size`` bytes; training writes these rows again."""
        if self.path.exists():
            with self._explained():
                os.truncate(self.path, size)
        self._size, self._hash = size, hashlib.blake2b(self._read(size), digest_size=16)

    def _read(self, size: int) -> bytes:
        try:
            with check_plain(self.path, self.path.parent).open("rb") as file:
                return file.read(size)
        except (OSError, StrangeFileError):
            return b""

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror}); free some space", code=1) from None


def _finite(value: Any) -> Any:
    """None, which is null in JSON, for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def noted(notes: Any) -> tuple[int, dict[str, list[Any]]]:
    """The next evaluation and the seals of the row files; a checkpoint of a stranger may note anything."""
    try:
        rows = LATER | notes["rows"]
        evaluation, seals = notes["evaluation"], {name: rows[name] for name in ROW_FILES}
        sizes = [evaluation, *(size for size, digest in seals.values() if isinstance(digest, str))]
    except (TypeError, KeyError, ValueError):
        sizes, seals = [], {}
    if len(sizes) <= len(ROW_FILES) or not all(type(size) is int and size >= 0 for size in sizes):
        raise UserError("it does not note where it was written", code=1)
    return notes["evaluation"], seals


def column(values: dict[str, np.ndarray], seed: int) -> dict[str, float]:
    """One seed's numbers, in as many digits as float32 holds."""
    return {name: float(f"{value[seed]:.7g}") for name, value in values.items()}
