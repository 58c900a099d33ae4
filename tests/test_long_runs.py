"""What must not grow while a run goes on for days: memory, arrays on the device, files. The long form is a soak."""

import mmap
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.errors import UserError
from prism_marl.runs import runner, spectra
from prism_marl.training.state import packed
from tiny import small

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def soak(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import soak_memory  # pyright: ignore[reportMissingImports]

    return soak_memory


@pytest.mark.slow
def test_memory_does_not_grow_from_evaluation_to_evaluation(soak):
    row = soak.measure("roles/2", 80)
    assert row["device_arrays_end"] <= row["device_arrays_settled"]
    assert row["bytes_per_evaluation"] < 100_000, row  # a copy of the state would be about as much


def test_checkpoints_of_a_buffer_that_fills_share_their_programs():
    """JAX keeps every program that it has compiled, so one per size would be a leak until the buffer is full."""
    trainer = runner.make_trainer(small("roles/2", "prism", learner__buffer="50", run__seeds="2"))
    compiled: list[str] = []

    def listen(event: str, duration: float, **_) -> None:
        compiled.extend([event] * ("backend_compile" in event))

    state = trainer.init()  # also the first thing that anybody asks of this trainer
    storage = [np.arange(leaf.size).reshape(leaf.shape) % 100 for leaf in jax.tree.leaves(state.seeds.buffer.storage)]
    structure = jax.tree.structure(state.seeds.buffer.storage)
    state = eqx.tree_at(lambda s: s.seeds.buffer.storage, state, structure.unflatten(map(jnp.asarray, storage)))
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for filled in (1, 2, 7, 48, 49, 50, 60, 0):
            begun = eqx.tree_at(lambda s: s.seeds.buffer.added, state, jnp.asarray([filled // 2, filled]))
            for part, whole in zip(jax.tree.leaves(packed(begun).seeds.buffer.storage), storage, strict=True):
                np.testing.assert_array_equal(part, whole[:, :filled])
            if filled == 1:
                assert compiled, "nobody would notice"
                compiled.clear()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not compiled


def test_the_soak_notices_what_grows(soak, monkeypatch):
    """Twenty rounds that keep an array and eight megabytes each, which come from the system: memory that other tests
    have let go of would not make the process any larger."""
    kept = []

    def run(experiment, folder, memory):
        for _ in range(20):
            fresh = mmap.mmap(-1, 2**23)
            fresh.write(b"x" * 2**23)
            kept.append((runner.jnp.zeros(3), fresh))
            memory.progress(0, 0.0, "")

    monkeypatch.setattr(soak.runner, "run", run)
    row = soak.measure("roles/2", 20)
    assert row["device_arrays_end"] > row["device_arrays_settled"] and row["bytes_per_evaluation"] > 2**22


def test_the_number_of_rows_is_bounded_before_the_start():
    many = small("roles/2", "fups", run__steps="2000000", run__seeds="4", run__eval_every="10")
    with pytest.raises(
        UserError, match=r"run.eval_every: 10 makes 200,001 evaluations .* nearest valid value is 81"
    ) as e:
        many.validate()
    assert "\n" not in str(e.value)
    many.with_option("run.eval_every", "81").validate()
    with pytest.raises(UserError, match=r"run\.eval_every"):
        many.with_option("run.eval_every", "79").validate()


def test_spectra_are_thinned_evenly_and_the_last_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(spectra, "MOST", 3)
    experiment = small("roles/2", "prism", run__steps="40", run__eval_every="8")
    folder = runner.run(experiment, tmp_path / "run")
    assert [int(path.stem) for path in sorted((folder / "spectra").iterdir())] == [0, 2, 4, 5]
    assert len((folder / "eval.jsonl").read_text().splitlines()) == 6
