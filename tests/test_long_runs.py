"""What must not grow while a run goes on for days: memory, arrays on the device, files. The long form is a soak."""

from pathlib import Path
from typing import Any

import pytest

from prism_marl import runner
from prism_marl.errors import UserError
from tiny import small

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def soak(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import soak_memory  # pyright: ignore[reportMissingImports]

    return soak_memory


def test_memory_does_not_grow_from_evaluation_to_evaluation(soak):
    row = soak.measure("roles/2", 80)
    assert row["device_arrays_end"] <= row["device_arrays_settled"]
    assert row["bytes_per_evaluation"] < 100_000, row  # a copy of the state would be about as much


def test_the_soak_notices_what_grows(soak, monkeypatch):
    """Twenty rounds that keep an array and eight megabytes each."""
    kept = []

    def run(experiment, folder, memory):
        for _ in range(20):
            kept.append((runner.jnp.zeros(3), b"x" * 2**23))
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
    monkeypatch.setattr(runner, "MOST_SPECTRA", 3)
    experiment = small("roles/2", "prism", run__steps="40", run__eval_every="8")
    folder = runner.run(experiment, tmp_path / "run")
    assert [int(path.stem) for path in sorted((folder / "spectra").iterdir())] == [0, 2, 4, 5]
    assert len((folder / "eval.jsonl").read_text().splitlines()) == 6
