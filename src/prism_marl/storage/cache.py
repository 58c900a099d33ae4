"""Files that are kept to save time: sealed under their name, bounded in size, and never waited for.

A file that is missing, damaged, cut short, no plain file, or written under another name counts as not there, so it is
made anew. Only files that begin as ours do are ever deleted, because the folder may hold others.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prism_marl.errors import UserError
from prism_marl.storage.files import check_plain, write_atomically

MAGIC = b"prism-marl cache 1\n"
SEAL = len(MAGIC) + hashlib.sha256().digest_size  # bytes before the content
SUFFIX = ".kept"
LARGEST_FILE = 2**30  # bytes; a larger program is not kept
LIMIT = 1024  # MiB of each folder, unless the variable below says otherwise
WRITERS = 8  # processes that may fill a folder at the same time without going beyond its limit
LIMIT_VARIABLE = "PRISM_MARL_CACHE_LIMIT"


def cache_limit() -> int:
    """Bytes that each folder of a cache may hold."""
    text = os.environ.get(LIMIT_VARIABLE, "") or str(LIMIT)
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UserError(f"{LIMIT_VARIABLE}: expected a whole number of MiB, got '{text[:60]}'")
    return int(text) * 2**20


@dataclass(frozen=True)
class Cache:
    """A folder of kept files; those that were not read for longest go when it is full."""

    folder: Path
    limit: int = LIMIT * 2**20  # bytes
    room: list[int] = field(  # bytes that can be written before the folder, which others fill too, is looked at again
        default_factory=lambda: [0], repr=False, compare=False
    )

    def read(self, key: str) -> bytes | None:
        """What was kept under a key; None if there is nothing that can be trusted to be that."""
        path = self.path(key)
        try:
            content = check_plain(path, self.folder, LARGEST_FILE + SEAL).read_bytes()
        except (OSError, ValueError, MemoryError):
            return None
        if content[:SEAL] != sealed(key, content[SEAL:]):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # read now
        return content[SEAL:]

    def write(self, key: str, content: bytes) -> None:
        """Keep something. A folder that cannot be written costs the next start its time, no more."""
        if len(content) > min(LARGEST_FILE, self.limit):
            return
        try:
            write_atomically(self.path(key), sealed(key, content) + content)
        except UserError:
            return
        self.room[0] -= SEAL + len(content)
        if self.room[0] < 0:  # a look at thousands of files takes longer than writing one
            self.shrink(self.limit)

    def path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def files(self) -> list[tuple[float, int, Path]]:
        """(time of the last reading, bytes, path) of all kept files, those not read for longest first."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                        about = entry.stat(follow_symlinks=False)
                        found.append((about.st_mtime, about.st_size, Path(entry.path)))
        return sorted(found)

    def shrink(self, limit: int) -> int:
        """Delete files until so many bytes are left at most; returns how many were deleted."""
        found = self.files()
        held, gone = sum(size for _, size, _ in found), 0
        for _, size, path in found:
            if held <= limit:
                break
            with contextlib.suppress(OSError):
                if _is_ours(path):
                    path.unlink()
                    held, gone = held - size, gone + 1
        self.room[0] = (limit - held) // WRITERS
        return gone


def sealed(key: str, content: bytes) -> bytes:
    """What stands before a content: it tells damage, and a file that bears another's name."""
    return MAGIC + hashlib.sha256(key.encode() + b"\0" + content).digest()


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        begin = file.read(len(MAGIC))
    return begin == MAGIC or not begin


def folders_of(cache: Path) -> Iterator[Path]:
    """The folders of one cache: machine code of XLA, and lowered programs."""
    yield cache
    yield cache / "lowered"
