"""Frozen dataclasses to JSON and back, and single fields from the command line, all checked in the user's words.

One set of rules for both doors: every value is checked against the annotation of its field, every complaint names the
field by its dotted path, and unknown names come with the nearest known one.
"""

import contextlib
import dataclasses
import decimal
import difflib
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal, TypeVar, get_args, get_origin

from prism_marl.errors import UserError, nearest

MOST_MEANT = 3  # options that a hint names

Config = TypeVar("Config")


def ordered_fields(config: Any) -> list[dataclasses.Field[Any]]:
    """Fields in the order in which files and lists show them: ``metadata={"after": name}`` lets a field of a subclass
    stand behind one of its base."""
    found = [field for field in dataclasses.fields(config) if "after" not in field.metadata]
    for field in dataclasses.fields(config):
        if "after" in field.metadata:
            names = [other.name for other in found]
            found.insert(names.index(field.metadata["after"]) + 1, field)
    return found


def to_dict(config: Any, *, digest: bool = False) -> Any:
    """Plain JSON types. A ``digest`` leaves out fields that came later (``metadata={"since": format}``) while they have
    their default, or the value that earlier versions had (``"before"``): earlier experiments keep their folders."""
    if dataclasses.is_dataclass(config):
        values = {field.name: (field, getattr(config, field.name)) for field in ordered_fields(config)}
        return {
            name: to_dict(value, digest=digest)
            for name, (field, value) in values.items()
            if not (digest and "since" in field.metadata and value == field.metadata.get("before", field.default))
        }
    if isinstance(config, tuple):
        return [to_dict(item, digest=digest) for item in config]
    return config


def from_dict(cls: type[Config], data: Any, path: str = "") -> Config:
    """Build a config from JSON. Fields that are missing have the value that earlier versions had (``"before"``), which
    mostly is their default."""
    if not isinstance(data, dict):
        raise UserError(f"{path or 'config'}: expected an object with fields, got {_shown(data)}")
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}  # pyright: ignore[reportArgumentType]
    for name in data:
        if name not in known:
            raise UserError(f"{_join(path, name)}: there is no such field; {nearest(str(name), known)}")
    for name, field in known.items():
        if name not in data and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{_join(path, name)}: this field is missing")
    before = {name: field.metadata["before"] for name, field in known.items() if "before" in field.metadata}
    return cls(**before | {name: coerce(value, hints[name], _join(path, name)) for name, value in data.items()})


def override(config: Config, path: str, text: str, trail: str = "") -> Config:
    """A copy with the field at a dotted path replaced by the value of a command-line word."""
    if not _exists(config, path):
        known, given = [option for option, _, _ in options(config, trail)], _join(trail, path)
        raise UserError(f"--{given}: there is no such option; {nearest_option(given, known)}")
    name, _, rest = path.partition(".")
    here = _join(trail, name)
    value = getattr(config, name)
    if dataclasses.is_dataclass(value):
        if not rest:
            fields = ", ".join(f"--{path}" for path, _, _ in options(value, here))
            raise UserError(f"--{here}: names a group of options, not one; known: {fields}")
        new: Any = override(value, rest, text, here)
    elif rest:
        raise UserError(f"--{_join(trail, path)}: '{here}' has no fields of its own")
    else:
        new = coerce(text, typing.get_type_hints(type(config))[name], f"--{here}", text=True)
    return dataclasses.replace(config, **{name: new})  # pyright: ignore[reportArgumentType, reportReturnType]


def _exists(config: Any, path: str) -> bool:
    """Whether the names of a dotted path are fields, as far as there are groups of fields."""
    for name in path.split("."):
        if not dataclasses.is_dataclass(config):
            break
        if name not in {field.name for field in dataclasses.fields(config) if "recorded" not in field.metadata}:
            return False
        config = getattr(config, name)
    return True


def nearest_option(name: str, paths: Iterable[str], words: Iterable[str] = ()) -> str:
    """A hint for a misspelt option: a field that has this last name, else what is spelt most alike. Fields are named by
    their whole dotted paths; ``words`` are options that set no field, with their dashes."""
    paths, words, name = list(paths), list(words), name.removeprefix("--")
    last = name.rpartition(".")[2].replace("-", "_")
    for ending in (f".{last}", f"_{last}"):
        if same := [f"'--{path}'" for path in paths if path.endswith(ending)][:MOST_MEANT]:
            return f"did you mean {' or '.join(same)}?"
    spelt = {path.rpartition(".")[2]: f"--{path}" for path in paths} | {path: f"--{path}" for path in paths}
    spelt |= {word.removeprefix("--"): word for word in words}
    if close := difflib.get_close_matches(name, spelt, n=1, cutoff=0.5):
        return f"did you mean '{spelt[close[0]]}'?"
    group = [f"--{path}" for path in paths if path.startswith(f"{name.partition('.')[0]}.")]
    return f"known: {', '.join(group or sorted(words) or sorted({path.partition('.')[0] for path in paths}))}"


def options(config: Any, prefix: str = "") -> list[tuple[str, Any, str]]:
    """Every field as (dotted path, current value, what it is for), the last read from the comment beside it.

    Tags are left out: ``sharing.method`` says which class this is and has no other value.
    """
    rows = []
    meanings, hints = comments(type(config)), typing.get_type_hints(type(config))
    for field in ordered_fields(config):
        if get_origin(hints[field.name]) is Literal and len(get_args(hints[field.name])) == 1:
            continue
        if "recorded" in field.metadata:  # no setting: it says what was done to the run
            continue
        value, path = getattr(config, field.name), _join(prefix, field.name)
        if dataclasses.is_dataclass(value):
            rows += options(value, path)
        else:
            rows.append((path, value, meanings.get(field.name, "")))
    return rows


def choices(config: Any, path: str) -> tuple[str, ...]:
    """The possible values of the field at a dotted path, if it has only some; else nothing."""
    name, _, rest = path.partition(".")
    if rest:
        return choices(getattr(config, name), rest)
    hint = typing.get_type_hints(type(config))[name]
    return tuple(map(str, get_args(hint))) if get_origin(hint) is Literal else ()


def differences(one: Any, other: Any, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Fields in which two configs differ, as (dotted path, value in the first, value in the second); None for a field
    that one of them does not have."""
    first, second = (to_dict(part) if dataclasses.is_dataclass(part) else part for part in (one, other))
    if not isinstance(first, dict) or not isinstance(second, dict):
        return [] if first == second else [(prefix, first, second)]
    names = dict.fromkeys([*first, *second])
    return [row for name in names for row in differences(first.get(name), second.get(name), _join(prefix, name))]


def coerce(value: Any, kind: Any, path: str, *, text: bool = False) -> Any:
    """The value as the annotation wants it, or a sentence that says what was expected."""
    origin = get_origin(kind)
    if origin is Literal:
        choices = get_args(kind)
        if value in choices and isinstance(value, type(choices[0])):
            return value
        raise UserError(f"{path}: {_shown(value)} is not a choice; {nearest(str(value), map(str, choices))}")
    if origin in (types.UnionType, typing.Union):
        return _coerce_union(value, get_args(kind), path, text)
    if origin is tuple:
        items = value.split(",") if text and isinstance(value, str) else value
        if not isinstance(items, list):
            raise UserError(f"{path}: expected a list, got {_shown(value)}")
        return tuple(coerce(item, get_args(kind)[0], f"{path}[{n}]", text=text) for n, item in enumerate(items))
    if dataclasses.is_dataclass(kind):
        parse = getattr(kind, "from_json", None)
        return parse(value, path) if parse else from_dict(typing.cast(type, kind), value, path)
    return _coerce_scalar(value, kind, path, text)


def _coerce_union(value: Any, choices: tuple[Any, ...], path: str, text: bool) -> Any:
    if type(None) in choices and (value is None or (text and str(value).lower() == "none")):
        return None
    rest = [choice for choice in choices if choice is not type(None)]
    return coerce(value, rest[0], path, text=text)


def _coerce_scalar(value: Any, kind: Any, path: str, text: bool) -> Any:
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if isinstance(value, bool):
            return value
        if text and str(value).lower() in words:
            return words[str(value).lower()]
        raise UserError(f"{path}: expected true or false, got {_shown(value)}")
    if kind is str:
        if isinstance(value, str):
            return value
        raise UserError(f"{path}: expected text, got {_shown(value)}")
    number = _number(value, text)
    if isinstance(number, int) and abs(number) >= 2**63:
        raise UserError(f"{path}: {_shown(value)} is too large; whole numbers stay below 2^63")
    if number is None or not math.isfinite(number):
        raise UserError(f"{path}: expected a {'whole ' if kind is int else ''}number, got {_shown(value)}")
    if kind is float:
        return float(number)
    if number != int(number):
        raise UserError(f"{path}: expected a whole number, got {_shown(value)}; the nearest is {round(number)}")
    if abs(number) >= 2**63:
        raise UserError(f"{path}: {_shown(value)} is too large; whole numbers stay below 2^63")
    return int(number)


def _number(value: Any, text: bool) -> int | float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not text or not isinstance(value, str) or len(value) > 100:
        return None
    return read_number(value)


SUFFIXES = {"k": 3, "m": 6, "g": 9}  # powers of ten


def read_number(text: str) -> int | float | None:
    """A number as people write it: 3000000, 3_000_000, 3e6, 3M or 500k; None if it is none. Whole ones stay exact."""
    found = re.fullmatch(r"(.*[\d.])\s*([kmg])", text.strip(), re.IGNORECASE)
    if found is not None:
        with contextlib.suppress(ArithmeticError, ValueError):
            number = decimal.Decimal(found[1].replace("_", "")) * 10 ** SUFFIXES[found[2].lower()]
            return int(number) if number == number.to_integral_value() else float(number)
        return None
    for parse in (int, float):
        try:
            return parse(text)
        except (ValueError, OverflowError):
            continue
    return None


@functools.cache
def comments(cls: type) -> dict[str, str]:
    """Trailing comments of field declarations: the explanation stands once, beside the field."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            lines = inspect.getsource(base).splitlines()
        except (OSError, TypeError):
            continue
        for line in lines:
            name, colon, rest = line.strip().partition(":")
            if colon and name.isidentifier() and "  # " in rest:
                found[name] = rest.split("  # ", 1)[1]
    return found


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        return f"a {type(value).__name__}"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
