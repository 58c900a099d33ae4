"""What an installed package says it needs, and whether that is there. Only metadata is read; nothing is imported."""

import importlib.metadata
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PACKAGE = "prism-marl"
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_MARKER = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


@dataclass(frozen=True)
class Requirement:
    """A package that another one needs."""

    name: str
    wanted: str  # such as ">=0.5.3"; empty if any version will do
    version: str | None  # that is installed

    @property
    def fits(self) -> bool:
        """Whether it is installed in a version that will do."""
        return self.version is not None and fits(self.version, self.wanted)


def requirements_of(package: str, extra: str = "") -> list[Requirement] | None:
    """What a package needs, or what one of its extras adds; None if the package is not installed."""
    try:
        written = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found: list[Requirement] = []
    for line in written:
        parts = _REQUIREMENT.fullmatch(line)
        if parts is None:
            continue
        name, inner, wanted, marker = parts[1], parts[2] or "", parts[3].strip(), parts[4] or ""
        needed_by = _MARKER.search(marker)
        if (needed_by[1] if needed_by else "") != extra:
            continue
        found.append(Requirement(name, wanted, _version(name)))
        for part in inner.split(","):  # `jax[cuda13]` needs what jax names under cuda13
            found += (requirements_of(name, part.strip()) or []) if part.strip() else []
    return found


def extras_of(package: str) -> list[str]:
    """Names of the extras of a package, in order."""
    try:
        return sorted(importlib.metadata.metadata(package).get_all("Provides-Extra") or [])
    except importlib.metadata.PackageNotFoundError:
        return []


def fits(version: str, wanted: str) -> bool:
    """Whether a version meets every comparison; those that are not known count as met."""
    for clause in filter(None, (part.strip() for part in wanted.split(","))):
        sign = next((sign for sign in _COMPARED if clause.startswith(sign)), None)
        if sign is None:
            continue
        held, bound = _release(version), _release(clause.removeprefix(sign))
        length = max(len(held), len(bound))
        pad = tuple(parts + (0,) * (length - len(parts)) for parts in (held, bound))
        if not _COMPARED[sign](*pad):
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    """The numbers at the front: 1.2.3rc1 is 1, 2, 3."""
    found = re.match(r"\s*(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
