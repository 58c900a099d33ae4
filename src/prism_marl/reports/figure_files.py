"""Which files beside a page are its own: a manifest names them, and nothing else there is overwritten or deleted."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from prism_marl.errors import UserError
from prism_marl.storage.files import parse_json, write_atomically

MANIFEST = "figures.json"
LARGEST = 2**20  # bytes of a manifest
LARGEST_PAGE = 2**26  # letters of a page that are searched for links; ours have a few millions
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.(png|pdf)")  # as figures are named
_LINKED = re.compile(r'"figures/([A-Za-z0-9][A-Za-z0-9._+-]*)"')  # in a page of a version without manifests


class FigureFiles:
    """The folder ``figures`` beside a page."""

    def __init__(self, page: Path):
        self.page, self.folder = page, page.parent / "figures"
        for path in (page, self.folder):
            if path.is_symlink():
                raise UserError(f"--out {page.parent}: {path.name} is a link; give a folder that holds neither")
        self.own = self._recorded()

    def claim(self, names: Iterable[str]) -> None:
        """Before figures of these names are written: note that they will be ours, so that a report that is killed on
        the way can be made again. Raises if one of them is somebody else's."""
        wanted = set(names)
        for name in sorted(wanted - self.own):
            if (self.folder / name).is_symlink() or (self.folder / name).exists():
                raise UserError(
                    f"{self.folder / name}: this file was not made by a report, which would replace it; move it, or "
                    "give another --out"
                )
        self.own |= wanted
        self._record()

    def keep(self, names: Iterable[str]) -> None:
        """After the page was written: delete what earlier reports have made and this one has not."""
        wanted = set(names)
        for name in sorted(self.own - wanted):
            path = self.folder / name
            if path.is_file() and not path.is_symlink():
                path.unlink()
        self.own = wanted
        self._record()

    def _record(self) -> None:
        content = {"made by": "prism-marl report, which deletes these files when they are out of date"}
        text = json.dumps(content | {"files": sorted(self.own)}, indent=1) + "\n"
        write_atomically(self.folder / MANIFEST, text.encode())

    def _recorded(self) -> set[str]:
        path = self.folder / MANIFEST
        if not path.is_symlink() and path.is_file() and path.stat().st_size <= LARGEST:
            try:
                found = parse_json(path.read_text(encoding="utf-8"))["files"]
                return {name for name in found if isinstance(name, str) and _PLAIN.fullmatch(name)}
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                raise UserError(f"{path}: cannot be read; move it, or give another --out") from None
        if path.is_symlink() or path.exists():
            raise UserError(f"{path}: cannot be read; move it, or give another --out")
        if not self.page.is_file():
            return set()
        with self.page.open(encoding="utf-8", errors="replace") as file:
            stems = _LINKED.findall(file.read(LARGEST_PAGE))
        return {f"{stem}.{ending}" for stem in stems for ending in ("png", "pdf")}
