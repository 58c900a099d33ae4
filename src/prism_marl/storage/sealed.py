"""Safetensors with a checksum: checkpoints, spectra and policies. Nothing in such a file is code."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

PIECE = 2**24  # bytes of a large array that are read at once


def serialise(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Safetensors whose bytes depend on the content alone; the library writes its metadata in a random order."""
    content = bytearray(safetensors.numpy.save(tensors, metadata=metadata))
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(metadata.items()))
    content[8 : 8 + size] = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
    return bytes(content)


class Pieces:
    """An array of a file that may be too large to hold: only its bytes pass by, in order."""

    def __init__(self, file: Any, name: str, path: Path, span: tuple[int, int]):
        self._path, self._span = path, span
        self.shape = tuple(file.get_slice(name).get_shape())
        empty = 0 in self.shape or not self.shape
        first = file.get_tensor(name) if empty else file.get_slice(name)[(slice(0, 1),) * len(self.shape)]
        self.dtype = first.dtype

    def __iter__(self) -> Iterator[np.ndarray]:
        place, end = self._span
        with self._path.open("rb") as file:
            file.seek(place)
            while place < end:
                part = file.read(min(PIECE, end - place))
                if not part:
                    raise EOFError
                place += len(part)
                yield np.frombuffer(part, np.uint8)


def spans(path: Path) -> dict[str, tuple[int, int]]:
    """Where the bytes of each array stand in a file whose header the library has accepted."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    start = 8 + size
    offsets = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: (start + begin, start + end) for name, (begin, end) in offsets.items()}


def digest(tensors: Mapping[str, np.ndarray | Pieces], content: str) -> str:
    """A checksum over all arrays, with their names, types and shapes, and the text that goes with them."""
    found = hashlib.blake2b(content.encode(), digest_size=16)
    for name in sorted(tensors):
        value = tensors[name]
        found.update(f"{name}:{value.dtype}:{value.shape};".encode())
        for part in value if isinstance(value, Pieces) else [value]:
            whole = np.ascontiguousarray(part)
            found.update(whole.reshape(-1).view(np.uint8).data if whole.size else b"")
    return found.hexdigest()
