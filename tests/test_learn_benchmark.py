"""Learning runs side by side: who gets which cores, and what is left of one that fails."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "learn.py"


@pytest.fixture(scope="module")
def learn():
    spec = importlib.util.spec_from_file_location("learn_benchmark", BENCHMARK)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cores_are_shared_out_evenly_or_as_many_as_asked_for(learn):
    assert learn.shares_of([0, 1, 2, 3, 4], 2, None) == [[0, 2, 4], [1, 3]]
    assert learn.shares_of([4, 5], 3, None) == [[4], [5], [4, 5]]  # too few: those without a share take turns
    assert learn.shares_of([0, 1, 2, 3, 4, 5, 6, 7], 4, 3) == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 0]]
    assert learn.shares_of([3], 2, 5) == [[3], [3]]


def test_a_run_that_fails_leaves_what_it_said(learn, tmp_path):
    broken, sound = tmp_path / "runs" / "broken", tmp_path / "runs" / "sound"
    says = "import sys; print('the reason', file=sys.stderr); sys.exit({})"
    commands = {folder: [sys.executable, "-c", says.format(code)] for folder, code in ((broken, 1), (sound, 0))}
    assert learn.run_all(commands, 1, lambda folder: False, None) == [broken]
    assert [path.name for path in sorted((tmp_path / "runs").iterdir())] == ["broken.err"]
    assert (tmp_path / "runs" / "broken.err").read_text().strip() == "the reason"
