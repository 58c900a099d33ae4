"""Seeds spread over several devices: forced host devices, in a process of their own."""

import os
import subprocess
import sys

import jax
import pytest

from prism_marl.training import sharding
from tiny import final_state, rows_of, same_arrays

EARLY = 10  # rows; later ones follow rounding, which a relu or a maximum may blow up a thousandfold in one update
CHILD = """
import shutil
import sys
from pathlib import Path
import jax
from prism_marl.monitor import Quiet
from prism_marl.runs import checkpoint, runner
from prism_marl.runs.folder import load_experiment
from prism_marl.training import programs

class Notes(Quiet):
    def note(self, text):
        print(text)

devices = set()
compiled = programs.Programs._compile
def watched(self, name, arguments):
    program = compiled(self, name, arguments)
    def call(*given):
        result = program(*given)
        if name == "learn":
            devices.update((len(leaf.sharding.device_set), leaf.sharding.shard_shape(leaf.shape)[0])
                           for leaf in jax.tree.leaves(result.seeds))
        return result
    return call
programs.Programs._compile = watched

whole, cut = map(Path, sys.argv[2:])
experiment = load_experiment(Path(sys.argv[1]))
runner.run(experiment, whole, Notes(), whole.parent)
assert devices == {(2, 1)}, devices
shutil.copytree(whole, cut)
checkpoint.paths(cut / "checkpoints")[0].unlink()
runner.run(experiment, cut, Notes(), whole.parent)
assert not (whole.parent / "lowered").exists()  # programs for several devices are not kept
"""


def test_two_devices_compute_what_one_computes_and_continue_exactly(tmp_path, undisturbed):
    one, two, cut = undisturbed, tmp_path / "two", tmp_path / "cut"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    words = [sys.executable, "-c", CHILD, *map(str, (one, two, cut))]
    done = subprocess.run(
        words, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "continuing from step" in done.stdout and "devices are used" not in done.stdout
    assert [(row["seed"], row["step"]) for row in rows_of(two)] == [(row["seed"], row["step"]) for row in rows_of(one)]
    for name in ("eval", "train"):
        for found, wanted in zip(rows_of(two, name)[:EARLY], rows_of(one, name)[:EARLY], strict=True):
            assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert same_arrays(final_state(cut), final_state(two))
    assert [(cut / f"{name}.jsonl").read_bytes() for name in ("eval", "train")] == [
        (two / f"{name}.jsonl").read_bytes() for name in ("eval", "train")
    ]


@pytest.mark.parametrize(("seeds", "used"), [(1, 1), (4, 4), (8, 4), (6, 3), (5, 1), (2, 2)])
def test_every_device_gets_equally_many_seeds(monkeypatch, seeds, used):
    monkeypatch.setattr(jax, "local_devices", lambda: ["a", "b", "c", "d"])
    assert sharding.seed_devices(seeds) == ["a", "b", "c", "d"][:used]
