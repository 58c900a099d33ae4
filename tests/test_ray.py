"""A sweep on a real Ray cluster of this machine, of which a worker is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
import warnings
from pathlib import Path

import pytest

from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment
from prism_marl.runs.progress import read_progress
from prism_marl.sweeps.executors import make_executor, ray_cluster
from prism_marl.sweeps.executors.ray_cluster import Ray
from prism_marl.sweeps.files import load_sweep
from prism_marl.sweeps.grid import folder_of, is_finished
from tiny import SMALL, long_roles, rows_of, same_result


def kill_in_the_middle(folder, killed: list[int]) -> None:
    """SIGKILL for the worker of an experiment once it has written some rows."""
    give_up = time.monotonic() + 300
    while time.monotonic() < give_up:
        told, path = read_progress(folder), folder / "eval.jsonl"
        if told is not None and path.exists() and path.read_bytes().count(b"\n") >= 8:
            os.kill(told.pid, signal.SIGKILL)
            killed += [told.pid, path.read_bytes().count(b"\n")]
            return
        time.sleep(0.002)


def grid_file(path: Path) -> list[Experiment]:
    """Two seeds of a tiny experiment, as the words of a grid and as experiments."""
    options = SMALL | {"run.steps": "1500", "run.eval_every": "50", "run.seeds": "2", "run.seed": ["5", "6"]}
    path.write_text(json.dumps({"tasks": ["roles/2"], "sharing": ["fups"], "options": options}))
    experiments = list(load_sweep(path).experiments)
    assert experiments[0] == long_roles()
    return experiments


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_every_row_is_there(tmp_path, undisturbed):
    """In a process of its own: Ray forks, and here JAX runs threads already."""
    experiments = grid_file(tmp_path / "grid.json")
    first, second = (folder_of(experiment, tmp_path) for experiment in experiments)
    killed: list[int] = []
    threading.Thread(target=kill_in_the_middle, args=(first, killed), daemon=True).start()
    words = ["sweep", str(tmp_path / "grid.json"), "--executor", "ray", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "prism_marl.cli", *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.partition(" ")[2] for line in done.stderr.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]
    changes = [line.partition(":")[0] for line in lines if not re.match("running .*:", line)]  # once a minute: how far
    assert sorted(changes) == sorted(
        f"{state} roles/2 fups run.seed={seed}" for state in ("running", "finished") for seed in (5, 6)
    )
    told = read_progress(first)
    assert len(killed) == 2 and 8 <= killed[1] < 62 and told is not None and told.pid != killed[0]
    assert [row["evaluation"] for row in rows_of(first)] == [n for n in range(31) for _ in range(2)] and is_finished(
        second
    )
    assert same_result(first, undisturbed)


def test_without_ray_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"Ray is not installed: .*pip install.* 'prism-marl\[ray\]'"):
        make_executor("ray")


def test_more_than_this_machine_has_is_refused_at_once():
    class Cluster:
        def cluster_resources(self):
            return {"CPU": 2.0}

    with pytest.raises(UserError, match="--gpus: this machine has 0, not 1"):
        Ray(gpus=1)._resources(Cluster())
    assert Ray()._resources(Cluster()) == {"num_cpus": 1, "num_gpus": 0}
    assert Ray(address="auto", gpus=1)._resources(Cluster()) == {"num_cpus": 1, "num_gpus": 1}


def test_starting_a_cluster_after_jax_was_used_does_not_frighten_anybody():
    """`reproduce` plans with JAX first, which then warns of every fork; here warnings are errors."""

    def init(**options):
        warnings.warn("os.fork() was called. os.fork() is incompatible with ...", RuntimeWarning, stacklevel=2)

    ray_cluster._connect(types.SimpleNamespace(init=init), None)


def test_a_cluster_that_does_not_answer_is_asked_once(monkeypatch):
    monkeypatch.delenv("RAY_NUM_REDIS_GET_RETRIES", raising=False)
    Ray()
    assert "RAY_NUM_REDIS_GET_RETRIES" not in os.environ  # a cluster of our own may be slow to start
    Ray(address="nowhere:1")
    assert os.environ["RAY_NUM_REDIS_GET_RETRIES"] == "1"
