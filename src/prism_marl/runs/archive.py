"""The members of a ``.tar.gz`` that a stranger may have made, read into memory within bounds.

Only what an archive of spectra holds is understood: plain files with short names. Everything else is passed over, so no
header can ask for memory, name a path, or send the reader back to where it was.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from prism_marl.storage.files import LARGEST_ROWS, StrangeFileError

BLOCK = 512
PLAIN = (b"0", b"\0", b"7")  # types of members that are files
MOST_MEMBERS = 20_000  # a run writes at most a thousand spectra


def read_members(path: Path, suffix: str) -> dict[str, bytes]:
    """Name and content of the plain files with a suffix. Raises ``StrangeFileError`` where bounds are passed."""
    try:
        with gzip.open(path, "rb") as file:
            return dict(_members(file, suffix))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StrangeFileError("is not a sound archive") from error


def _members(file: gzip.GzipFile, suffix: str) -> Iterator[tuple[str, bytes]]:
    left = LARGEST_ROWS  # bytes of all members together
    for _ in range(MOST_MEMBERS):
        header = file.read(BLOCK)
        if len(header) < BLOCK or not header.strip(b"\0"):
            return
        name, size = _described(header)
        padded = -(-size // BLOCK) * BLOCK
        left -= BLOCK + padded
        if left < 0:  # before reading: a small archive can hold terabytes of zeros
            raise StrangeFileError("holds too much")
        content = file.read(padded)
        if len(content) < padded:
            raise StrangeFileError("is cut short")
        if header[156:157] in PLAIN and name.endswith(suffix):
            yield name, content[:size]
    raise StrangeFileError("holds too many files")


def _described(header: bytes) -> tuple[str, int]:
    """Name and size in a header whose checksum is right."""
    told = _octal(header[148:156])
    if told != sum(header[:148]) + 8 * ord(" ") + sum(header[156:]):
        raise StrangeFileError("is not a sound archive")
    prefix = header[345:500] if header[257:262] == b"ustar" else b""
    parts = [part.partition(b"\0")[0].decode(errors="replace") for part in (prefix, header[:100])]
    return "/".join(filter(None, parts)), _octal(header[124:136])


def _octal(digits: bytes) -> int:
    text = digits.strip(b"\0 ")
    if not text.isdigit():
        raise StrangeFileError("is not a sound archive")  # also sizes that are negative or of gigabytes, in base 256
    try:
        return int(text, 8)
    except ValueError:
        raise StrangeFileError("is not a sound archive") from None
