"""The published counts, cell by cell, and the tools built on counting."""

import functools
import math

import jax
import pytest

from prism_marl.envs import describe
from prism_marl.experiment.presets import method_settings
from prism_marl.networks import MlpActor, RecurrentAgent, build_agent
from prism_marl.paper import budgets
from prism_marl.paper.scaling import AGENTS, STUDIED, Point, scaling_figure, scaling_study, write_figure
from prism_marl.sharing import METHODS, FuPS, Kaleidoscope, NoPS, Prism, Sharing
from prism_marl.sharing.footprint import footprint
from prism_marl.types import EnvSpec

TABLES = budgets.published()
BUDGET_CELLS = budgets.budget_cells(TABLES)
SCALING_CELLS = budgets.scaling_cells(TABLES)
LBF = "lbf/10x10-3p-3f"
ANT = "mamujoco/ant-4x2"


def _name(cell):
    return f"{cell.task}-{cell.setting}-{cell.method}"


def test_the_tables_hold_every_published_number():
    assert len(BUDGET_CELLS) == 4 * 2 * 4
    assert len(SCALING_CELLS) == 4 * 4
    assert len({_name(cell) for cell in BUDGET_CELLS + SCALING_CELLS}) == 48


@pytest.mark.parametrize("cell", BUDGET_CELLS, ids=_name)
def test_budget_count_is_met_to_the_unit(cell):
    assert cell.ours == cell.paper


@pytest.mark.parametrize("cell", SCALING_CELLS, ids=_name)
def test_overhead_ratio_is_met_to_four_decimals(cell):
    assert f"{cell.ours:.4f}" == f"{cell.paper:.4f}"


def agent_shapes(spec: EnvSpec, sharing: Sharing, width: int) -> RecurrentAgent | MlpActor:
    """The network without its numbers."""
    build = functools.partial(build_agent, spec, sharing, width=width, last_action=False)
    return jax.eval_shape(lambda key: build(key=key), jax.random.key(0))


@pytest.mark.parametrize("task", [LBF, ANT])
@pytest.mark.parametrize("method", METHODS)
def test_footprint_counts_every_leaf_once(method, task):
    shapes = agent_shapes(describe(task), method_settings(task, method), 16)
    leaves = jax.tree.leaves(shapes)
    size = footprint(shapes)
    assert size.shared + size.private == size.parameters == sum(math.prod(leaf.shape) for leaf in leaves)
    assert size.bytes == sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    assert budgets.trainable(task, method_settings(task, method), 16) <= size.parameters


@pytest.mark.parametrize("method", ["snp", "prism"])
def test_shapes_are_those_of_the_built_network(method):
    settings = method_settings(ANT, method)
    built = build_agent(describe(ANT), settings, width=8, last_action=False, key=jax.random.key(0))
    assert footprint(built) == footprint(agent_shapes(describe(ANT), settings, 8))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(built))


def test_actions_decide_the_architecture():
    assert isinstance(agent_shapes(describe(LBF), FuPS(), 8), RecurrentAgent)
    assert isinstance(agent_shapes(describe(ANT), FuPS(), 8), MlpActor)


def test_shared_and_private_parts_by_hand():
    # Ant 4x2: 4 agents, observation 111, 2 actions each; width 8.
    mlp = (111 + 1) * 8 + (8 + 1) * 8 + (8 + 1) * 2
    nops = budgets.count(ANT, NoPS(), 8)
    assert (nops.shared, nops.private, nops.ratio) == (0, 4 * mlp, 1.0)
    fups = budgets.count(ANT, FuPS(), 8)
    assert (fups.shared, fups.private, fups.ratio, fups.bytes) == (mlp, 0, 0.0, 4 * mlp)
    kaleidoscope = budgets.count(ANT, Kaleidoscope(), 8)
    weights = 115 * 8 + 8 * 8 + 8 * 2
    assert (kaleidoscope.shared, kaleidoscope.private) == (weights + 8 + 8 + 2 + 4 * 8, 4 * weights)
    prism = budgets.count(ANT, Prism(common=0.5), 8)
    factors = 8 * (115 + 8 + 1) + 8 * (8 + 8 + 1) + 2 * (8 + 2 + 1)
    assert (prism.shared, prism.private) == (factors + 8 + 8 + 2 + 4 * 8, 4 * (4 + 4 + 1))


def test_fixed_masks_count_but_are_not_trained():
    snp = method_settings(ANT, "snp")
    size = budgets.count(ANT, snp, 8)
    assert budgets.trainable(ANT, snp, 8) == size.shared
    assert size.private == 4 * (8 + 8 + 2)
    assert size.bytes == 4 * size.shared + size.private  # a mask entry is one byte


def test_a_thousand_agents_are_counted_without_memory():
    size = budgets.count("mamujoco/swimmer-1024x2", Kaleidoscope(), 256)
    assert size.bytes > 5 * 2**30


@pytest.mark.parametrize("method", ["nops", "fups", "snp", "kaleidoscope", "prism", "hypermarl", "lorasa"])
def test_budget_solver_finds_the_closest_width(method):
    settings = method_settings(LBF, method)
    target = budgets.count(LBF, settings, 40).parameters
    assert budgets.fit_width(LBF, settings, target).width == 40
    between = (target + budgets.count(LBF, settings, 41).parameters) / 2
    assert budgets.fit_width(LBF, settings, math.ceil(between) - 1).width == 40
    assert budgets.fit_width(LBF, settings, math.floor(between) + 1).width == 41


def test_budget_solver_explains_ties_and_limits():
    settings = FuPS()
    sizes = {width: budgets.count(ANT, settings, width).parameters for width in range(1, 40)}
    low = next(width for width in range(1, 39) if (sizes[width] + sizes[width + 1]) % 2 == 0)
    tie = budgets.fit_width(ANT, settings, (sizes[low] + sizes[low + 1]) // 2)
    assert tie.width == low
    assert f"widths {low} and {low + 1}" in tie.note
    small = budgets.fit_width(ANT, settings, 1)
    assert (small.width, small.size.parameters) == (1, sizes[1])
    assert "already needs" in small.note
    large = budgets.fit_width(ANT, settings, 10**15)
    assert large.width == budgets.LARGEST_WIDTH
    assert "ends at" in large.note
    exact = budgets.fit_width(ANT, settings, sizes[1])
    assert (exact.width, exact.note) == (1, "")
    last = budgets.count(ANT, settings, budgets.LARGEST_WIDTH).parameters
    assert budgets.fit_width(ANT, settings, last).width == budgets.LARGEST_WIDTH


def test_scaling_study_and_figure(tmp_path):
    points = scaling_study()
    assert len(points) == len(AGENTS) * len(STUDIED)
    by = {(point.method, point.agents): point for point in points}
    assert by["prism", 1024] == Point("prism", 1024, 1_510_920, 263_168, pytest.approx(0.1483, abs=5e-5))
    assert all(by["prism", n].private < by["snp", n].private < by["kaleidoscope", n].private for n in AGENTS)
    figure = scaling_figure(points)
    assert [len(axis.get_lines()) for axis in figure.axes] == [4, 4]  # NoPS shares nothing, FuPS+ID adds nothing
    assert all(axis.get_xscale() == axis.get_yscale() == "log" for axis in figure.axes)
    for name, start in (("a/scaling.png", b"\x89PNG"), ("scaling.pdf", b"%PDF")):
        write_figure(figure, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
