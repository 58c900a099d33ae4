"""Numbers as they are stored: those that are only ever 0 or 1 take one bit each, without loss."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Num, UInt8


class Parts(NamedTuple):
    """What is kept of rows of numbers."""

    numbers: Num[Array, "*b n"]  # those that are not flags, in order
    bits: UInt8[Array, "*b k"] | None  # None without flags: XLA takes long over large arrays that hold nothing


@dataclass(frozen=True)
class Layout:
    """Which of so many numbers are flags."""

    size: int
    flags: tuple[int, ...] = ()

    def shapes(self, *leading: int, dtype: Any) -> Any:
        """The shapes and types of ``Parts``."""
        numbers: Any = jax.ShapeDtypeStruct((*leading, self.size - len(self.flags)), np.dtype(dtype))
        return Parts(numbers, bits_shape(*leading, len(self.flags)) if self.flags else None)

    def pack(self, values: Num[Array, "*b size"]) -> Parts:
        if not self.flags:
            return Parts(values, None)
        return Parts(values[..., self._numbers], to_bits(values[..., np.asarray(self.flags)] != 0))

    def unpack(self, parts: Parts) -> Num[Array, "*b size"]:
        if parts.bits is None:
            return parts.numbers
        flags = from_bits(parts.bits, len(self.flags)).astype(parts.numbers.dtype)
        order = np.argsort(np.concatenate([self._numbers, np.asarray(self.flags)]))
        return jnp.concatenate([parts.numbers, flags], axis=-1)[..., order]

    @property
    def _numbers(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self.size), self.flags)


def bits_shape(*sizes: int) -> Any:
    """Of so many flags along the last axis."""
    return jax.ShapeDtypeStruct((*sizes[:-1], -(-sizes[-1] // 8)), np.dtype("uint8"))


def to_bits(flags: Bool[Array, "*b n"]) -> UInt8[Array, "*b k"]:
    """Eight flags in a number."""
    return jnp.packbits(flags, axis=-1)


def from_bits(bits: UInt8[Array, "*b k"], number: int) -> Bool[Array, "*b n"]:
    """The first so many flags."""
    return jnp.unpackbits(bits, axis=-1, count=number).astype(bool)
