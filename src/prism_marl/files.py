"""Safe reading of files that somebody else has made, and atomic writing.

A run folder often comes from another person. A link in it could put a private file on a page or append rows to it, a
pipe would block the reader for ever, and a file of a few bytes on disk can claim to have terabytes. So only regular
files inside the run folder and below a size limit are opened.
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
LARGEST_ROWS = 2**28  # bytes of a file of rows


class StrangeFileError(ValueError):
    """A file that is not read. The message ends a sentence that begins with the file's name."""


def check_plain(path: Path, root: Path, limit: int | None = None) -> Path:
    """Returns the path if it is a regular file inside ``root`` and not larger than ``limit``; raises otherwise."""
    if _leads_out(path, root):
        raise StrangeFileError("is a link that leads out of the run folder")
    size = path.stat().st_size  # raises if there is no such file
    if not path.is_file():
        raise StrangeFileError("is not a file")
    if limit is not None and size > limit:
        raise StrangeFileError(f"is larger than {limit // 2**20} MiB")
    return path


def read_text(path: Path, root: Path, limit: int = LARGEST_TEXT, errors: str = "strict") -> str:
    """The text of a regular file."""
    return check_plain(path, root, limit).read_text(encoding="utf-8", errors=errors)


def parse_object(text: str) -> Any:
    """Parse JSON. Raises if an object has the same name twice, because parsers differ in which value they take."""
    return json.loads(text, object_pairs_hook=_unique_names)


def refuse_links_out(folder: Path) -> None:
    """Raise if writing into a run folder could change a file outside it."""
    for path in _entries(folder):
        if _leads_out(path, folder):
            raise UserError(f"{path} is a link that leads out of the run folder; put what it points to in its place")
        if not (path.is_file() or path.is_dir()):
            raise UserError(f"{path} is neither a file nor a folder; choose another --out")


def _entries(folder: Path) -> Iterator[Path]:
    """Everything in a run folder; folders in it hold files only."""
    for path in folder.iterdir() if folder.is_dir() else ():
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from path.iterdir()


def _leads_out(path: Path, root: Path) -> bool:
    try:
        return not path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # links that point to each other
        return True


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{twice}: this field comes twice; remove one of them")
    return found


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, to which the block writes; it replaces ``path`` when the block ends.

    Readers see the old file or the new one, never a part. If the block raises, the old file stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.unlink(missing_ok=True)  # a link of this name would be followed
        yield temporary
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # it exists only if something failed; on a read-only disk this fails too
            temporary.unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that the new content survives a power cut; a full disk leaves the old file in place."""
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # makes the new name survive, too
        finally:
            os.close(directory)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror}); free some space or choose another folder", code=1
        ) from None


def number(value: object) -> float:
    """``value`` as a float; NaN if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer with hundreds of digits
        return math.nan
