"""Rules for code from outside this package: which file it comes from, and which names it may take.

Methods, learners and task families register themselves by name. A name belongs to the file that took it first: the
same file may be executed twice in one process (as a program and as a module, say), another file needs another name.
"""

import dataclasses
import inspect
import re
import sys
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from prism_marl.errors import UserError

NAME = re.compile(r"[a-z][a-z0-9_]*")  # how the command line and config.json write names


def is_foreign(thing: Any) -> bool:
    """Whether a class or function is defined outside this package."""
    return module_name(thing).partition(".")[0] != "prism_marl"


def source_file(thing: Any) -> Path | None:
    """The Python file that defines a class or function; None where there is none, as in an interactive session."""
    found = getattr(sys.modules.get(module_name(thing)), "__file__", None)
    return Path(found).resolve() if found else None


def module_name(thing: Any) -> str:
    """The module that defines a class or function, also behind ``functools.partial``."""
    return str(getattr(getattr(thing, "func", thing), "__module__", None) or "")


def refuse_taken_name(what: str, name: str, held: Any, new: Any) -> None:
    """Raise ``UserError`` where a name belongs to code of another file."""
    same = source_file(held) is not None and source_file(held) == source_file(new)
    if held is not None and (not is_foreign(held) or not same):
        raise UserError(f"{what}: there is already a {what} '{name}'; choose another name")


def check_name(what: str, name: Any) -> None:
    """Raise ``UserError`` for a name that cannot be written on the command line."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UserError(f"{what}: {name!r} cannot be a name; use small letters, digits and underscores, such as 'mine'")


def settings_name(cls: type[Any], what: str, tag: str) -> str:
    """The name in the field ``tag`` of a settings class, after a look at all that a config needs from such a class."""
    title = getattr(cls, "__name__", repr(cls))
    frozen = getattr(vars(cls).get("__dataclass_params__"), "frozen", False) if inspect.isclass(cls) else False
    if not frozen:
        raise UserError(
            f"{title}: the settings of a {what} are a frozen dataclass; write @dataclass(frozen=True) above"
        )
    known: Any = cls
    fields = {field.name: field for field in dataclasses.fields(known)}
    name = fields[tag].default if tag in fields else dataclasses.MISSING
    if name is dataclasses.MISSING:
        raise UserError(f'{title}.{tag}: this field names the {what}; add {tag}: Literal["mine"] = "mine"')
    check_name(what, name)
    hint = typing.get_type_hints(cls)[tag]
    if get_origin(hint) is not Literal or get_args(hint) != (name,):
        raise UserError(f'{title}.{tag}: its type must allow this one name; write {tag}: Literal["{name}"] = "{name}"')
    for field in fields.values():
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{title}.{field.name}: this field has no default; presets need one, so give it a value")
    if not isinstance(getattr(cls, "label", None), str):
        raise UserError(f'{title}.label: pages need a name to show; add label: ClassVar[str] = "Mine"')
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise UserError(f"{title}: {missing[0]} is not defined; add the method to the class")
    return str(name)
