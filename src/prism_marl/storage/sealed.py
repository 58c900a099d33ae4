"""Safetensors with a checksum: checkpoints, spectra and policies. Nothing in such a file is code."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
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
    """An array of a file that is too large to hold: only its bytes pass by, in order."""

    def __init__(self, file: Any, name: str):
        self._file, self._name = file, name
        self.shape = tuple(file.get_slice(name).get_shape())
        self._small = len(self.shape) < 2 or 0 in self.shape
        first = file.get_tensor(name) if self._small else file.get_slice(name)[(slice(0, 1),) * len(self.shape)]
        self.dtype = first.dtype

    def __iter__(self) -> Iterator[np.ndarray]:
        if self._small:
            yield self._file.get_tensor(self._name)
            return
        array, row = self._file.get_slice(self._name), math.prod(self.shape[2:]) * self.dtype.itemsize
        some = max(1, PIECE // row)
        for first in range(self.shape[0]):
            for second in range(0, self.shape[1], some):
                yield array[first : first + 1, second : min(second + some, self.shape[1])]


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
