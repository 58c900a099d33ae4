"""Counted sizes of agent networks: the paper's tables cell by cell, and the width that fits a budget."""

import functools
import importlib.resources
import json
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from prism_marl.envs import describe
from prism_marl.experiment.presets import method_settings, preset
from prism_marl.sharing import Sharing
from prism_marl.sharing.footprint import Footprint, footprint

BUDGETS = ("full", "half")  # the order of each pair of widths in tables.json
SCALING_TASK = "mamujoco/swimmer-{agents}x2"
SCALING_WIDTH = 256
LARGEST_WIDTH = 16384  # as in Experiment.validate


@functools.lru_cache(maxsize=4096)
def shapes(task: str, sharing: Sharing, width: int) -> Any:
    """What the real constructors build for a method on a task, as shapes: 1024 agents need no memory."""
    learner = preset(task, sharing.method).learner.learner(sharing, describe(task), width=width)
    return jax.eval_shape(learner.build_agent, jax.random.key(0))


def count(task: str, sharing: Sharing, width: int) -> Footprint:
    """The size of the network, split into shared and private numbers."""
    return footprint(shapes(task, sharing, width))


def trainable(task: str, sharing: Sharing, width: int) -> int:
    """How many numbers learn: all but fixed masks and cluster labels."""
    leaves = jax.tree.leaves(shapes(task, sharing, width))
    return sum(math.prod(leaf.shape) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact))


@dataclass(frozen=True)
class Cell:
    """One number of the paper, and ours. ``setting`` is the budget or the number of agents."""

    task: str
    setting: str
    method: str
    width: int
    paper: float
    ours: float

    @property
    def agrees(self) -> bool:
        """Whether both are equal; ratios have been rounded to the paper's four decimals."""
        return self.paper == self.ours


def published() -> dict[str, Any]:
    """The paper's tables."""
    return json.loads(importlib.resources.files("prism_marl.paper").joinpath("tables.json").read_text("utf-8"))


def budget_cells(tables: dict[str, Any]) -> list[Cell]:
    """The budget tables: four tasks, two budgets, four methods."""
    return [
        Cell(task, budget, method, width, paper, count(task, method_settings(task, method), width).parameters)
        for task, rows in tables["budget"].items()
        for index, budget in enumerate(BUDGETS)
        for method, paper in rows[budget].items()
        for width in [tables["widths"][task][method][index]]
    ]


def scaling_cells(tables: dict[str, Any]) -> list[Cell]:
    """The agent-scaling table: the share of private numbers, to four decimals."""
    return [
        Cell(task, agents, method, SCALING_WIDTH, paper, round(size.ratio, 4))
        for agents, row in tables["agent_scaling"].items()
        if agents.isdigit()  # the other entries are notes
        for task in [SCALING_TASK.format(agents=agents)]
        for method, paper in row.items()
        for size in [count(task, method_settings(task, method), SCALING_WIDTH)]
    ]


@dataclass(frozen=True)
class Fit:
    """The width closest to a budget; ``note`` says if the budget is out of reach or if there is a tie."""

    width: int
    size: Footprint
    note: str = ""


def fit_width(task: str, sharing: Sharing, budget: int) -> Fit:
    """Find the width by bisection, because the number of parameters grows with the width."""

    def size(width: int) -> int:
        return count(task, sharing, width).parameters

    low, high = 1, LARGEST_WIDTH
    if budget < size(low):
        return Fit(low, count(task, sharing, low), f"out of reach: width {low} already needs {size(low):,}")
    if budget > size(high):
        return Fit(high, count(task, sharing, high), f"out of reach: width {high:,} ends at {size(high):,}")
    while high - low > 1:  # size(low) <= budget <= size(high)
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= budget else (low, middle)
    under, over = budget - size(low), size(high) - budget
    width = low if under <= over else high
    note = f"tie: widths {low} and {high} are both {under:,} off, the smaller one is kept" if under == over else ""
    return Fit(width, count(task, sharing, width), note)
