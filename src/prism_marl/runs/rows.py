"""The row files of a run folder: JSON lines that know what they hold."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prism_marl.errors import UserError


BOOKKEEPING = ("evaluation", "seed", "step")  # keys of a row that are not measurements


class Rows:
    """An append-only file of JSON lines that knows what it holds, so that a resumed run can tell whether rows were lost
    and cut those that were not saved."""

    def __init__(self, path: Path):
        self.path = path
        self._size, self._hash = 0, hashlib.blake2b(digest_size=16)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Write rows and make sure they are on the disk."""
        text = "".join(json.dumps({k: _finite(v) for k, v in row.items()}) + "\n" for row in rows).encode()
        with self._written(), self.path.open("ab") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(text)
        self._hash.update(text)

    def seal(self) -> list[Any]:
        """What a checkpoint notes about the rows up to now: their bytes and a digest of them."""
        return [self._size, self._hash.hexdigest()]

    def complaint(self, seal: list[Any]) -> str | None:
        """Why the file does not begin with the rows that were sealed, if it does not."""
        size, digest = seal
        found = self._read(size)
        if len(found) < size:
            return f"{self.path.name} has lost rows: {len(found)} of {size} bytes are left"
        if hashlib.blake2b(found, digest_size=16).hexdigest() != digest:
            return f"{self.path.name} does not hold the rows that were written"
        return None

    def cut(self, size: int) -> None:
        """Forget everything after the first ``size`` bytes: rows written after the checkpoint come again."""
        if self.path.exists():
            with self._written():
                os.truncate(self.path, size)
        self._size, self._hash = size, hashlib.blake2b(self._read(size), digest_size=16)

    def _read(self, size: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                return file.read(size)
        except OSError:
            return b""

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror}); free some space", code=1) from None


def _finite(value: Any) -> Any:
    """JSON has no NaN; a row says null instead."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
