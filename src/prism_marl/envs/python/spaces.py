"""Observations of a gymnasium space as one vector, checked before they are cast.

A cast hides mistakes: NaN becomes a whole number, 300.7 becomes 44, a text becomes a number, a missing part becomes
zeros. So shapes, types and ranges are compared with the space first. Floats that are not finite pass, because the run
looks for them and names the seed and the step.
"""

from typing import Any

import numpy as np

SMALL = (np.dtype(bool), np.dtype(np.int8), np.dtype(np.uint8))  # flags in one byte each
KINDS = "biuf"  # of numpy types that are real numbers


class MisfitError(ValueError):
    """A value that its space does not have. The message ends a sentence that begins with what was observed."""


def real(value: Any) -> np.ndarray:
    """The value as an array of real numbers."""
    try:
        found = np.asarray(value)
    except ValueError:
        raise MisfitError("is not an array of numbers") from None
    if found.dtype.kind not in KINDS:
        raise MisfitError(f"is of type {found.dtype}, not of real numbers")
    return found


def whole(value: Any, low: Any, high: Any) -> np.ndarray:
    """The value as whole numbers from ``low`` to ``high``."""
    found = real(value)
    if found.dtype.kind == "f" and not (found == np.floor(found)).all():  # NaN is not equal to itself
        raise MisfitError("has numbers that are not whole")
    if found.size and not ((found >= low) & (found <= high)).all():
        raise MisfitError(f"has numbers outside {np.min(low)} to {np.max(high)}")
    return found


def flags(value: Any, size: int) -> np.ndarray:
    """The value as so many flags, given as 0 and 1 or as booleans."""
    small = type(value) is np.ndarray and value.shape == (size,) and value.dtype in SMALL
    if small and not value.tobytes().strip(b"\0\1"):  # nearly always, and several times as fast as what follows
        return value
    return shaped(whole(value, 0, 1), (size,))


def shaped(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if value.shape != shape:
        raise MisfitError(f"has shape {list(value.shape)} instead of {list(shape)}")
    return value


def flatten(spaces: Any, space: Any, value: Any) -> np.ndarray:
    """The value of a space as float32 [size], ordered as gymnasium's own ``flatten``; ``spaces`` is its module."""
    if isinstance(space, spaces.Box):
        if type(value) is np.ndarray and value.dtype == space.dtype and value.shape == space.shape and _fits(space):
            return value.astype(np.float32, copy=False).reshape(-1)  # nearly always, and nothing is left to look at
        return _box(space, value)
    if isinstance(space, spaces.Discrete):
        return _one_hot(value, int(space.n), int(space.start))
    if isinstance(space, spaces.MultiBinary):
        return shaped(whole(value, 0, 1), space.shape).astype(np.float32).reshape(-1)
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = np.asarray(space.nvec).reshape(-1), np.asarray(space.start).reshape(-1)
        found = shaped(real(value), np.shape(space.nvec)).reshape(-1)
        return np.concatenate([_one_hot(*one) for one in zip(found, sizes, starts, strict=True)])
    if isinstance(space, spaces.Dict):
        return _joined(spaces, list(space.spaces.items()), value, dict)
    if isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
        if not isinstance(value, tuple | list) or len(value) != len(parts):
            raise MisfitError(f"is not a tuple of {len(parts)} parts")
        return _joined(spaces, parts, value, (tuple, list))
    if not space.contains(value):
        raise MisfitError(f"is not a value of {space}")
    return np.asarray(spaces.flatten(space, value), np.float32).reshape(-1)


def _fits(space: Any) -> bool:
    """Whether every value of the type becomes a finite float32, if it was finite before."""
    return space.dtype.kind in "biu" or space.dtype.itemsize <= 4


def _box(space: Any, value: Any) -> np.ndarray:
    if np.issubdtype(space.dtype, np.integer):
        limits = np.iinfo(space.dtype)
        found = whole(value, limits.min, limits.max)
    elif space.dtype == np.bool_:
        found = whole(value, 0, 1)
    else:
        found = real(value)
    with np.errstate(over="ignore"):  # what becomes infinite is noticed as such
        return shaped(found, space.shape).astype(np.float32, copy=False).reshape(-1)


def _one_hot(value: Any, size: int, start: int) -> np.ndarray:
    made = np.zeros(size, np.float32)
    made[int(shaped(whole(value, start, start + size - 1), ())) - start] = 1.0
    return made


def _joined(spaces: Any, parts: list[tuple[Any, Any]], value: Any, kind: Any) -> np.ndarray:
    if not isinstance(value, kind):
        raise MisfitError(f"is a {type(value).__name__}")
    made = []
    for key, part in parts:
        try:
            made.append(flatten(spaces, part, value[key]))
        except KeyError:
            raise MisfitError(f"has no part {key!r}") from None
        except MisfitError as error:
            raise MisfitError(f"has a part {key!r} that {error}") from None
    return np.concatenate(made) if made else np.zeros(0, np.float32)
