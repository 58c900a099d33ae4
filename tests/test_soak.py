"""The short form of ``make soak``: training in a Python environment, killed while it writes a checkpoint and a second
process is at the door."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prism_marl.runs import checkpoint

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def soak(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import soak_kills as soak  # pyright: ignore[reportMissingImports]

    return soak


@pytest.fixture
def family(soak) -> Any:
    few = {"run.steps": "400", "run.eval_every": "50", "run.save_every": "1"}
    return soak.Family("lbforaging/5x5-2p-1f", "fups", soak.EPISODES | few)


@pytest.mark.slow
def test_a_python_environment_survives_a_kill_at_an_aimed_moment(soak, family, tmp_path):
    rival = family.command(tmp_path / "run-0")
    lives = soak.Soak("short", family, tmp_path, random.Random(), meanwhile=lambda: refused(rival))
    lives.run(["checkpoint"])
    assert lives.hits == {"checkpoint": 1} and lives.finished >= 1
    assert json.loads((lives.reference / "machine.json").read_text())["deterministic"]


def refused(command: list[str]) -> None:
    """A second process in the same folder is sent away in one sentence."""
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 1 and "in use by another process" in found.stderr and "Traceback" not in found.stderr


def test_a_difference_is_found(soak, tmp_path):
    for name in ("one", "other"):
        checkpoint.save(tmp_path / name / "checkpoints", 1, {"x": np.arange(3)}, {})
        (tmp_path / name / "eval.jsonl").write_text("{}\n")
        (tmp_path / name / "timing.jsonl").write_text(name)
    soak.difference(tmp_path / "one", tmp_path / "other")
    checkpoint.save(tmp_path / "one" / "checkpoints", 2, {"x": np.arange(3).astype(np.int32)}, {})
    with pytest.raises(soak.BrokenPromiseError, match="array x differs"):
        soak.difference(tmp_path / "one", tmp_path / "other")
    (tmp_path / "one" / "eval.jsonl").write_text("{ }\n")
    with pytest.raises(soak.BrokenPromiseError, match=r"eval\.jsonl differs"):
        soak.difference(tmp_path / "one", tmp_path / "other")
    (tmp_path / "one" / "done").touch()
    with pytest.raises(soak.BrokenPromiseError, match=r"files differ: .*done"):
        soak.difference(tmp_path / "one", tmp_path / "other")
