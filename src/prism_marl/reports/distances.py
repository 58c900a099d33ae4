"""Reads the tables of distances between agents out of a run's ``diversity.jsonl``, within bounds."""

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.reports.rows import LONGEST_ROW, MOST_ROWS
from prism_marl.runs.run_files import UNREADABLE, FloatArray
from prism_marl.storage.files import LARGEST_ROWS, check_plain, number

MOST_AGENTS = 16  # in a table
MOST_NUMBERS = 2_000_000  # in all tables of a run


@dataclass(frozen=True)
class Distances:
    """How differently every two agents of one seed act, at several times."""

    steps: FloatArray  # [f]
    agents: tuple[int, ...]  # which of the team, counted from 0
    tables: FloatArray  # [f, n, n]


def read_distances(path: Path) -> dict[int, Distances]:
    """The tables of each seed; rows without a good one are passed over, as their numbers are read elsewhere."""
    found: dict[int, dict[float, tuple[tuple[int, ...], FloatArray]]] = {}
    try:
        check_plain(path, path.parent, LARGEST_ROWS)
        held = 0
        with path.open("rb") as file:
            for line in islice(iter(lambda: file.readline(LONGEST_ROW), b""), MOST_ROWS):
                read = _table(line)
                if read is not None and held < MOST_NUMBERS:
                    seed, step, agents, table = read
                    held += table.size
                    found.setdefault(seed, {})[step] = (agents, table)
    except UNREADABLE:
        return {}
    return {seed: _stacked(tables) for seed, tables in sorted(found.items())}


def _table(line: bytes) -> tuple[int, float, tuple[int, ...], FloatArray] | None:
    """Seed, step, agents and table of a row; None if it has no good one."""
    try:
        row: Any = json.loads(line.decode("utf-8", errors="replace"))
        agents = tuple(int(number(agent)) for agent in row["agents"][: MOST_AGENTS + 1])
        if not 1 <= len(agents) <= MOST_AGENTS or min(agents) < 0:
            return None
        table = np.array([[number(value) for value in line[: len(agents)]] for line in row["distances"][: len(agents)]])
        step = number(row["step"])
        if table.shape != (len(agents), len(agents)) or not (np.isfinite(table).all() and np.isfinite(step)):
            return None
        return int(number(row["seed"])), step, agents, table
    except UNREADABLE:
        return None


def _stacked(tables: dict[float, tuple[tuple[int, ...], FloatArray]]) -> Distances:
    """By rising step; those of the agents that the last one has."""
    agents = tables[max(tables)][0]
    steps = sorted(step for step, (who, _) in tables.items() if who == agents)
    return Distances(np.array(steps), agents, np.stack([tables[step][1] for step in steps]))
