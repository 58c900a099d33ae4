"""A sweep on a real Ray cluster of this machine, of which a worker is killed."""

import os
import signal
import sys
import threading
import time

import pytest

from prism_marl import runner
from prism_marl.errors import UserError
from prism_marl.executors import Event, make_executor
from prism_marl.executors.ray_cluster import Ray
from prism_marl.progress import read_progress
from prism_marl.sweep import folder_of, is_finished, run_sweep
from tiny import long_roles, rows_of, same_result


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


@pytest.mark.filterwarnings("default")  # of Ray's own
def test_a_killed_worker_is_replaced_and_every_row_is_there(tmp_path):
    experiments = [long_roles(), long_roles().with_option("run.seed", "6")]
    first, second = (folder_of(experiment, tmp_path) for experiment in experiments)
    killed: list[int] = []
    events: list[Event] = []
    threading.Thread(target=kill_in_the_middle, args=(first, killed), daemon=True).start()
    outcome = run_sweep(experiments, tmp_path, Ray(), on_event=events.append)
    assert set(outcome.finished) == {first, second} and not outcome.failed
    assert len(killed) == 2 and 8 <= killed[1] < 31
    told = read_progress(first)
    assert told is not None and told.pid != killed[0]
    assert sorted((event.state, event.job.folder) for event in events) == sorted(
        (state, folder) for state in ("running", "finished") for folder in (first, second)
    )
    assert [row["evaluation"] for row in rows_of(first)] == list(range(31)) and is_finished(second)
    assert same_result(first, runner.run(experiments[0], tmp_path / "undisturbed"))


def test_without_ray_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"Ray is not installed; pip install 'prism-marl\[ray\]'"):
        make_executor("ray")


def test_more_than_this_machine_has_is_refused_at_once():
    class Cluster:
        def cluster_resources(self):
            return {"CPU": 2.0}

    with pytest.raises(UserError, match="--gpus: 1 are asked for, this machine has 0"):
        Ray(gpus=1)._resources(Cluster())
    assert Ray()._resources(Cluster()) == {"num_cpus": 1, "num_gpus": 0}
    assert Ray(address="auto", gpus=1)._resources(Cluster()) == {"num_cpus": 1, "num_gpus": 1}
