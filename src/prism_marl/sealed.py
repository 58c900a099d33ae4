"""Safetensors with a checksum: checkpoints, spectra and policies. Nothing in such a file is code."""

import hashlib
import json

import numpy as np
import safetensors.numpy


def serialise(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Safetensors whose bytes depend on the content alone; the library writes its metadata in a random order."""
    content = bytearray(safetensors.numpy.save(tensors, metadata=metadata))
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(metadata.items()))
    content[8 : 8 + size] = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
    return bytes(content)


def digest(tensors: dict[str, np.ndarray], content: str) -> str:
    """A checksum over all arrays, with their names, types and shapes, and the text that goes with them."""
    found = hashlib.blake2b(content.encode(), digest_size=16)
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        found.update(f"{name}:{value.dtype}:{value.shape};".encode())
        found.update(value.reshape(-1).view(np.uint8).data if value.size else b"")
    return found.hexdigest()
