"""The queue of runs behind the results: what is in it, what fits into a slice, and that nothing is run twice."""

import argparse
import sys
from pathlib import Path

import pytest

from prism_marl.experiment.presets import preset
from prism_marl.paper import plan
from tiny import small

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def evidence():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import evidence

        yield evidence
    for name in ("evidence", "learn"):
        sys.modules.pop(name)


def test_every_experiment_is_in_the_queue_once_with_five_seeds(evidence):
    entries = evidence.queue()
    assert len({entry.kept for entry in entries}) == len({entry.experiment for entry in entries}) == len(entries)
    assert {entry.experiment.run.seeds for entry in entries} == {5}
    first = [(entry.experiment.task, entry.experiment.sharing.method) for entry in entries[:9]]
    assert {task for task, _ in first} == {"mamujoco/ant-4x2"}
    assert len({method for _, method in first}) == 9
    assert {entry.section for entry in entries} == set(evidence.sections())


def test_sections_count_and_evaluate_alike_so_that_a_run_serves_all_that_need_it(evidence):
    robots = [e.experiment for e in evidence.queue() if e.experiment.learner.algorithm == "matd3"]
    assert len(robots) > 54  # those of the first section, and changed ones
    shared = {(e.learner.warmup_on_top, e.run.eval_every, e.run.eval_episodes, e.run.envs) for e in robots}
    assert len(shared) == 1
    battles = [e.experiment for e in evidence.queue() if e.experiment.learner.algorithm == "qmix"]
    assert {(e.run.eval_every, e.run.envs) for e in battles if e.task.startswith("skirmish")} == {(50_000, 32)}


def test_the_command_of_an_entry_makes_its_experiment(evidence):
    for entry in evidence.queue()[::7]:
        words = evidence.words_for(entry, Path("x"), tf32=False)
        task, method = words[words.index("train") + 1], words[words.index("--sharing") + 1]
        assert words[words.index("--out") + 2] == "--learner"
        learner, *rest = words[words.index("--learner") + 1 :]
        experiment = preset(task, method, learner=learner)
        for path, value in zip(rest[::2], rest[1::2], strict=True):
            experiment = experiment.with_option(path.removeprefix("--"), value)
        assert experiment == entry.experiment


def test_a_slice_takes_the_first_that_fit_and_fills_gaps_with_later_ones(evidence, monkeypatch):
    entries = evidence.queue()[:5]
    times = dict(zip((entry.experiment for entry in entries), (500.0, 900.0, 400.0, None, 90.0), strict=True))
    monkeypatch.setattr(plan, "time_of", lambda experiment, *_: (times[experiment], ""))
    taken = evidence.chosen(entries, 10, 1, 1.0, Path("nothing"))
    assert list(taken) == [entries[0], entries[3]]  # an unknown time takes what is left of its lane
    assert list(evidence.chosen(entries, 20, 2, 2.0, Path("nothing"))) == [
        entries[0],
        entries[2],
        entries[3],
        entries[4],
    ]
    assert not evidence.chosen(entries[1:3], 5, 8, 1.0, Path("nothing"))
    assert list(evidence.chosen(entries, 14, 1, 1.0, Path("nothing"), unknown=2)) == [
        entries[0],
        entries[3],
        entries[4],
    ]


def test_a_slice_keeps_the_rows_of_what_ended_and_nothing_is_run_twice(evidence, tmp_path, monkeypatch, capfd):
    changes = {"run__steps": "40", "run__eval_every": "20", "run__seeds": "5"}
    made = [small("roles/2", method, **changes) for method in ("fups", "nops")]
    monkeypatch.setattr(evidence, "sections", lambda: {"1-small": made})
    monkeypatch.setattr(evidence, "ROWS", tmp_path / "rows")
    found = argparse.Namespace(minutes=5.0, side_by_side=1, cores=None, tf32=False, out=tmp_path / "runs")
    entries = evidence.queue()
    assert evidence.run_slice(entries[:1], found) == []
    assert [entry.done for entry in entries] == [True, False]
    assert sorted(path.name for path in entries[0].kept.iterdir()) == sorted(evidence.learn.KEPT)
    late = argparse.Namespace(**(vars(found) | {"minutes": 0.0}))
    assert evidence.run_slice(entries[1:], late) == []
    assert not entries[1].done, "no time was left, so it did not begin"
    evidence.show(entries)
    said = capfd.readouterr().out
    assert "1-small        1 of 2 done" in said
    assert "nops" in said.split("next:")[1]
