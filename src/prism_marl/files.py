"""Files that a stranger may have made: only plain ones are opened, only inside their folder, only of a sane size.

A run folder is often somebody else's. A link in it could show a private file on a page or let a row be appended to it,
a pipe would be waited for without end, and a few bytes on the disk can claim to be terabytes.
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prism_marl.errors import UserError

LARGEST_TEXT = 2**26  # bytes of a settings file, a footprint or a replay
LARGEST_ROWS = 2**28  # of a file of rows


class StrangeFileError(ValueError):
    """Why a file is not read, as the end of a sentence that begins with its name."""


def check_plain(path: Path, root: Path, limit: int | None = None) -> Path:
    """The path, if it is a file inside ``root`` and not larger than ``limit``; opening it cannot hang or surprise."""
    if _leads_out(path, root):
        raise StrangeFileError("is a link that leads out of the run folder")
    size = path.stat().st_size  # raises where nothing is there
    if not path.is_file():
        raise StrangeFileError("is not a file")
    if limit is not None and size > limit:
        raise StrangeFileError(f"is larger than {limit // 2**20} MiB")
    return path


def read_text(path: Path, root: Path, limit: int = LARGEST_TEXT, errors: str = "strict") -> str:
    """The text of a plain file."""
    return check_plain(path, root, limit).read_text(encoding="utf-8", errors=errors)


def parse_object(text: str) -> Any:
    """JSON in which no name comes twice: which of two values counts must not depend on who reads it."""
    return json.loads(text, object_pairs_hook=_once)


def refuse_links_out(folder: Path) -> None:
    """Nothing that is written into a run folder may end up elsewhere."""
    for path in _entries(folder):
        if _leads_out(path, folder):
            raise UserError(f"{path} is a link that leads out of the run folder; put what it points to in its place")
        if not (path.is_file() or path.is_dir()):
            raise UserError(f"{path} is neither a file nor a folder; remove it, or choose another --out")


def _entries(folder: Path) -> Iterator[Path]:
    """Everything in a run folder; folders in it hold files only."""
    for path in folder.iterdir() if folder.is_dir() else ():
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from path.iterdir()


def _leads_out(path: Path, root: Path) -> bool:
    try:
        return not path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # links that go round in a circle
        return True


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{twice}: this field comes twice; remove one of them")
    return found


def write_atomically(path: Path, content: bytes) -> None:
    """Readers see the old file or the new one, never a part; a full disk leaves the old one in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # the new name itself must survive a power cut
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):  # on a disk that can only be read, even this fails
            temporary.unlink(missing_ok=True)
        raise UserError(
            f"{path}: cannot be written ({error.strerror}); free some space or choose another folder", code=1
        ) from None


def number(value: object) -> float:
    """``value`` as a float; NaN for anything that is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer with hundreds of digits
        return math.nan
