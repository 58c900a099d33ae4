"""Another commit's copy of a benchmark beside this one's: ``--against CHECKOUT`` of the speed benchmarks.

Both run in processes of their own, in turn: old, new, old, new, ... A ratio is old seconds / new seconds of the same
row in one such pair, so that above 1 this commit is faster; shown are the median and the range over all pairs.

Presets change between commits. Where the two give a field of the same name different values, the old one gets the new
one's, and that is said.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

SAME = ("table", "part", "task", "method", "seeds", "envs", "copies")  # columns that say which rows belong together
OPTIONS = """
import json, sys
try:
    from prism_marl import config
    from prism_marl.presets import preset
except ImportError:
    from prism_marl.experiment import config
    from prism_marl.experiment.presets import preset
print(json.dumps({path: str(value) for path, value, _ in config.options(preset(*sys.argv[1:]))}))
"""  # the first way is that of commits in which the package had no packages


def add_options(parser: argparse.ArgumentParser) -> None:
    """What every benchmark that can be compared takes."""
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="compare with the code of another commit")
    parser.add_argument("--rounds", type=int, default=3, help="with --against: pairs of old and new")


def words_without(names: Sequence[str]) -> list[str]:
    """This process's own words but for some options that take a value."""
    words, left = iter(sys.argv[1:]), []
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in names:
            left.append(word)
        elif not equals:
            next(words, None)
    return left


def compare(script: Path, checkout: Path, words: list[str], rounds: int, *, settings: Sequence[str] = ()) -> None:
    """Print a ratio for every row that both have. The words are those of both; ``settings`` only the old one gets."""
    script, checkout = script.resolve(), checkout.resolve()
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        old = rows_of(checkout / "benchmarks" / script.name, checkout, [*settings, *words])
        new = rows_of(script, script.parents[1], words)
        for key in old.keys() & new.keys():
            found.setdefault(key, []).append((old[key], new[key]))
    for key, pairs in sorted(found.items(), key=str):
        ratios = [old / new for old, new in pairs]
        row = {name: value for name, value in zip(SAME, key, strict=True) if value is not None}
        numbers = {"ratio": median(ratios), "lowest": min(ratios), "highest": max(ratios)}
        print(json.dumps(row | {name: round(value, 3) for name, value in numbers.items()} | {"pairs": len(pairs)}))
    if not found:
        print("no row is in both; see what each prints by itself")


def rows_of(script: Path, checkout: Path, words: list[str]) -> dict[tuple[Any, ...], float]:
    """Seconds per unit of work of every row that a benchmark prints as JSON or writes with ``--out``."""
    if not script.exists():
        sys.exit(f"{checkout} has no benchmarks/{script.name}")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        command = [sys.executable, str(script), *words]
        if '"--out"' in script.read_text():
            command += ["--out", str(out)]
        done = subprocess.run(command, env=_environment(checkout), stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed")
        text = out.read_text() if out.exists() else done.stdout
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {tuple(row.get(name) for name in SAME): seconds for row in rows if (seconds := _seconds(row))}


def different_settings(checkout: Path, task: str, method: str, *, but: Sequence[str]) -> list[str]:
    """``--set`` words that give the old code the values which the new code has for fields that both know, except for
    those that the benchmark sets itself."""
    old, new = (_settings(folder, task, method) for folder in (checkout, Path(__file__).parents[1]))
    changed = [f"{path}={new[path]}" for path in new if path not in but and old.get(path, new[path]) != new[path]]
    if changed:
        print(json.dumps({"task": task, "method": method, "set for the old code": changed}), flush=True)
    return [part for word in changed for part in ("--set", word)]


def _settings(checkout: Path, task: str, method: str) -> dict[str, str]:
    """The fields of a preset by their paths, as words of the command line."""
    command = [sys.executable, "-c", OPTIONS, task, method]
    done = subprocess.run(command, env=_environment(checkout), stdout=subprocess.PIPE, text=True, check=True)
    return {path: value for path, value in json.loads(done.stdout).items() if "." in path}


def _seconds(row: dict[str, Any]) -> float | None:
    if "update_ms" in row:
        return row["update_ms"] / 1000
    return 1 / row["steps_per_second"] if row.get("steps_per_second") else None


def _environment(checkout: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")}
