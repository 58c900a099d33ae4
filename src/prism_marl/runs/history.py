"""What computed a run: ``machine.json`` describes where it began, and has one segment for every change after that.

A run continues bit for bit only on the same machine, versions and flags. Where it goes on under others, its numbers may
differ from those of an undisturbed run, so the change is recorded with its step, said, and shown on the page.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prism_marl.errors import UserError
from prism_marl.storage.files import HeldFolder, number, parse_json, read_text, write_atomically

FILE = "machine.json"
DECIDING = (  # what can change numbers, as ``describe_machine`` names it
    "prism_marl", "commit", "jax", "jaxlib", "equinox", "optax", "numpy", "environment",
    "platform", "device", "devices", "cores", "products", "flags",
)  # fmt: skip
MOST_SHOWN = 12  # changes that a page tells


def begin(folder: Path, facts: Mapping[str, Any], inside: HeldFolder | None = None) -> None:
    """Record the machine of a run that has no checkpoint yet."""
    _write(folder, {**facts, "segments": [_segment(facts, 0)]}, inside)


def version(folder: Path) -> str:
    """The version of this package with which a run was begun; empty where that is not known."""
    found = (_read(folder) or {}).get("prism_marl")
    return found if isinstance(found, str) and re.fullmatch(r"\d{1,6}(\.\d{1,6}){0,3}", found) else ""


def resume(folder: Path, step: int, facts: Mapping[str, Any], inside: HeldFolder, *, strict: bool = False) -> str:
    """Begin a segment at a step if this machine is not that of the segment before; returns what to tell, if anything.

    Segments that began later belonged to rows that were cut. ``strict`` refuses a change before anything is written.
    """
    found = _read(folder)
    segments = [{"step": 0}] if found is None else _segments(found)
    kept = [one for place, one in enumerate(segments) if place == 0 or number(one.get("step")) < step]
    difference = _difference(kept[-1], facts)
    if found is None:
        difference = f"a machine that cannot be compared, because {FILE} cannot be read"
    if difference and strict:
        raise UserError(
            f"--strict: from step {step:,} on, {folder} would continue with {difference}, which can change numbers; "
            "restore what it was started with, or leave out --strict"
        )
    if difference:
        kept.append(_segment(facts, step))
    if kept != segments:
        described = dict(facts) if found is None else {k: v for k, v in found.items() if k != "segments"}
        _write(folder, {**described, "segments": kept}, inside)
    return f"from step {step:,} on: {difference}; this can change numbers, and {FILE} notes it" if difference else ""


def told(machine: Mapping[str, Any]) -> list[str]:
    """One sentence for every change after the beginning, for the page."""
    segments = _segments(machine)
    pairs = list(itertools.pairwise(segments))
    said = [
        f"From step {number(after.get('step')):,.0f} on, the run went on under {_difference(before, after)}; its "
        "numbers may differ from those of a run that was not moved."
        for before, after in pairs[:MOST_SHOWN]
    ]
    return said + [f"{len(pairs) - MOST_SHOWN} more such changes are in {FILE}."] * (len(pairs) > MOST_SHOWN)


def _segment(facts: Mapping[str, Any], step: int) -> dict[str, Any]:
    return {"step": step} | {name: facts[name] for name in DECIDING if name in facts}


def _segments(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The segments of a file; of one without any, what it says of the beginning."""
    segments = found.get("segments")
    kept = [one for one in segments if isinstance(one, Mapping)] if isinstance(segments, list) else []
    return kept or [found]


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Facts that both name and that differ; a fact that an older version did not record is not compared."""
    names = [name for name in DECIDING if name in before and name in now and before[name] != now[name]]
    return ", ".join(_told(name, before[name], now[name]) for name in names)


def _told(name: str, before: Any, now: Any) -> str:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        keys: Sequence[str] = [str(key) for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{key} {_word(now.get(key))} instead of {_word(before.get(key))}" for key in keys)
    return f"{name} {_word(now)} instead of {_word(before)}"


def _word(value: Any) -> str:
    return "none" if value in (None, "") else f"{value}"[:80]


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        found = parse_json(read_text(folder / FILE, folder))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _write(folder: Path, content: Mapping[str, Any], inside: HeldFolder | None) -> None:
    write_atomically(folder / FILE, (json.dumps(content, indent=1) + "\n").encode(), inside)
