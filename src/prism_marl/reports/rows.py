"""Reads files of rows that anybody may have made: line by line, numbers only, within bounds.

What a run writes stays far below the bounds. They are there so that a file cannot take more memory than a page needs.
"""

import json
from pathlib import Path

from prism_marl.storage.files import LARGEST_ROWS, StrangeFileError, check_plain, number

LONGEST_ROW = 2**20  # bytes
MOST_ROWS = 200_000  # a run writes at most half as many into a file
MOST_METRICS = 200  # names in a file; a run has some thirty
MOST_NUMBERS = 4_000_000  # in a file


def read_rows(path: Path, notes: list[str]) -> list[dict[str, float]]:
    """The numbers of the good rows of a file of JSON lines; a sentence for whatever was left out."""
    try:
        check_plain(path, path.parent, LARGEST_ROWS)
        return _Reader(path.name, notes).read(path)
    except StrangeFileError as error:
        notes.append(f"{path.name} {error} and was left out.")
    except OSError:
        notes.append(f"{path.name} is missing.")
    return []


class _Reader:
    """One file."""

    def __init__(self, name: str, notes: list[str]):
        self.name, self.notes = name, notes
        self.names: dict[str, str] = {}  # each once, however many rows have it
        self.unknown = False  # whether names were left out
        self.held = 0  # numbers

    def read(self, path: Path) -> list[dict[str, float]]:
        rows: list[dict[str, float]] = []
        bad: list[int] = []
        count = 0
        with path.open("rb") as file:
            while line := file.readline(LONGEST_ROW):
                whole = line.endswith(b"\n") or len(line) < LONGEST_ROW
                while not line.endswith(b"\n") and (rest := file.readline(LONGEST_ROW)):
                    line = rest  # passed over in parts
                count += 1
                if whole and not line.strip():
                    continue
                row = self._numbers(line) if whole else None
                if row is None:
                    bad.append(count - 1)
                else:
                    rows.append(row)
                    self.held += len(row)
                if len(rows) >= MOST_ROWS or self.held > MOST_NUMBERS or len(bad) > MOST_ROWS:
                    self.notes.append(
                        f"{self.name} has more rows than a run writes; only the first {len(rows):,} count."
                    )
                    break
        self._tell(bad, count)
        return rows

    def _numbers(self, line: bytes) -> dict[str, float] | None:
        try:
            row = json.loads(line.decode("utf-8", errors="replace"))
        except (ValueError, RecursionError):
            return None
        if not isinstance(row, dict):
            return None
        found = {}
        for name, value in row.items():
            if isinstance(value, int | float):
                kept = self.names.get(name)
                if kept is None and len(self.names) < MOST_METRICS:
                    kept = self.names.setdefault(name, name)
                if kept is None:
                    self.unknown = True
                else:
                    found[kept] = number(value)
        return found

    def _tell(self, bad: list[int], count: int) -> None:
        if bad == [count - 1]:
            self.notes.append(f"The last row of {self.name} is half-written and was left out.")
        elif bad:
            self.notes.append(f"{len(bad)} of {count} rows of {self.name} cannot be read and were left out.")
        if self.unknown:
            self.notes.append(f"{self.name} has more than {MOST_METRICS} metrics; the others were left out.")
