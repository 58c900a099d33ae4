"""Safe reading of files that somebody else has made, and atomic writing.

A run folder often comes from another person. A link in it could put a private file on a page or append rows to it, a
pipe would block the reader for ever, and a file of a few bytes on disk can claim to have terabytes. So only regular
files inside the run folder and below a size limit are opened.
"""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from prism_marl.errors import UserError

LARGEST_TEXT = 2**24  # bytes of a settings file, a footprint or anything else in JSON
LARGEST_ROWS = 2**27  # bytes of a file of rows, or of a whole archive of spectra
LOCK = ".lock"  # in a run folder: who holds it may write there
DEEPEST = 64  # levels of nesting in a JSON file; ours have six


_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.DOTALL)  # texts, which are passed over, and what nests


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
    refuse_deep(text)
    return json.loads(text, object_pairs_hook=_unique_names)


def parse_json(text: str) -> Any:
    """Parse JSON of a stranger. Raises ``ValueError`` where it is nested so deeply that reading or showing it fails."""
    refuse_deep(text)
    return json.loads(text)


def refuse_deep(text: str) -> None:
    """Raise if JSON is nested too deeply."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = 0
    for found in _BRACKETS.finditer(text):
        bracket = found[0]
        if bracket in "[{":
            depth += 1
            if depth > DEEPEST:
                raise StrangeFileError("is nested too deeply")
        elif bracket in "]}":
            depth -= 1


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


class HeldFolder:
    """A folder that this process alone writes into, for as long as the folder at this path is the one that it locked.

    A lock belongs to a file, not to a name: after ``rm -r`` or ``mv`` the path may be gone or be somebody else's
    folder, while the lock is still held. So every writer asks ``check`` first, and makes nothing outside the folder.
    """

    def __init__(self, path: Path, lock: IO[str]):
        self.path, self._lock = path, lock

    def check(self) -> None:
        """Raise unless the folder's lock file is the one that this process holds."""
        try:
            found, held = (self.path / LOCK).stat(), os.fstat(self._lock.fileno())
        except OSError:
            found = held = None
        if found is None or held is None or (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
            raise UserError(
                f"{self.path} was moved, deleted or replaced while this process was writing into it; nothing more is "
                "written there; put the folder back and start again, or choose another --out",
                code=1,
            )


@contextlib.contextmanager
def replacing(path: Path, inside: HeldFolder | None = None, *, make: bool = True) -> Iterator[Path]:
    """A temporary path beside ``path``, to which the block writes; it replaces ``path`` when the block ends.

    Readers see the old file or the new one, never a part. If the block raises, the old file stays. Folders above
    ``path`` are made, unless ``make`` is false; with ``inside``, none but the one that the path has in that folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    if make:
        _make_folder(path.parent, inside)
    try:
        temporary.unlink(missing_ok=True)  # a link of this name would be followed
        yield temporary
        if inside is not None:
            inside.check()
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # it exists only if something failed; on a read-only disk this fails too
            temporary.unlink()


def _make_folder(folder: Path, inside: HeldFolder | None) -> None:
    if inside is None:
        folder.mkdir(parents=True, exist_ok=True)
        return
    inside.check()
    if folder != inside.path:
        folder.mkdir(exist_ok=True)


def write_atomically(path: Path, content: bytes, inside: HeldFolder | None = None) -> None:
    """Replace a file so that the new content survives a power cut; a full disk leaves the old file in place."""
    try:
        with replacing(path, inside) as temporary, temporary.open("wb") as file:
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
            f"{path}: cannot be written ({error.strerror or error}); free some space or choose another folder", code=1
        ) from None


def number(value: object) -> float:
    """``value`` as a float; NaN if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer with hundreds of digits
        return math.nan
