"""Observations of a gymnasium space as one vector, checked before they are cast.

A cast hides mistakes: NaN becomes a whole number, 300.7 becomes 44, a text becomes a number, a missing part becomes
zeros. So shapes, types and ranges are compared with the space first. Floats that are not finite pass, because the run
looks for them and names the seed and the step.
"""

from typing import Any

import numpy as np

FLOAT32 = np.dtype(np.float32)
KINDS = "biuf"  # of numpy types that are real numbers


class MisfitError(ValueError):
    """A value that its space does not have. The message ends a sentence that begins with what was observed."""


def real(value: Any) -> np.ndarray:
    """The value as an array of real numbers."""
    try:
        found = np.asarray(value)
    except (ValueError, TypeError):
        raise MisfitError("is not an array of numbers") from None
    if found.dtype.kind not in KINDS:
        raise MisfitError(f"is of type {found.dtype}, not of real numbers")
    return found


def whole(value: Any, low: Any, high: Any) -> np.ndarray:
    """The value as whole numbers from ``low`` to ``high``."""
    found = real(value)
    if found.dtype.kind == "f" and not (found == np.floor(found)).all():  # NaN is not equal to itself
        raise MisfitError("has numbers that are not whole")
    with np.errstate(over="ignore"):  # short floats do not hold all limits: there these are infinite
        inside = ((found >= low) & (found <= high)).all()
    if not inside:
        raise MisfitError(f"has numbers outside {np.min(low)} to {np.max(high)}")
    return found


def flags(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The value as booleans, given as such or as 0 and 1. It may share the value's memory."""
    found = real(value)
    if found.dtype.itemsize == 1 and found.shape == shape and not found.tobytes().strip(b"\0\1"):
        return found.view(bool)  # nearly always, and several times as fast as what follows
    return shaped(whole(found, 0, 1), shape).astype(bool)


def shaped(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if value.shape != shape:
        raise MisfitError(f"has shape {list(value.shape)} instead of {list(shape)}")
    return value


def flatten(spaces: Any, space: Any, value: Any) -> np.ndarray:
    """The value of a space as float32 [size], ordered as gymnasium's own ``flatten``; ``spaces`` is its module."""
    if isinstance(space, spaces.Box):
        return box(space.dtype, space.shape, value).reshape(-1)
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


def box(dtype: np.dtype, shape: tuple[int, ...], value: Any) -> np.ndarray:
    """A value of a Box as float32. Several values of equal Boxes can be given as a list."""
    found = real(value)
    if found.dtype != dtype:  # a value of the Box's own type has nothing that the type cannot hold
        if dtype.kind in "iu":
            found = whole(found, np.iinfo(dtype).min, np.iinfo(dtype).max)
        elif dtype.kind == "b":
            found = whole(found, 0, 1)
    if found.dtype is FLOAT32 and found.shape == shape:
        return found  # nearly always
    shaped(found, shape)
    with np.errstate(over="ignore"):  # what becomes infinite is noticed as such
        return found.astype(np.float32, copy=False)


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
