"""``prism-marl footprint`` as a user meets it."""

import json

import pytest

from prism_marl import cli
from prism_marl.paper import budgets
from prism_marl.sharing import METHODS

LBF = "lbf/10x10-3p-3f"


@pytest.fixture
def prism_marl(capsys):
    def call(*argv):
        code = cli.main(["footprint", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["task", LBF]),
        (["--width", "8"], ["task"]),
        ([LBF, "--width", "0"], ["--width", "nearest valid value is 1"]),
        ([LBF, "--width", "-3"], ["--width", "nearest valid value is 1"]),
        ([LBF, "--width", "99999"], ["--width", "nearest valid value is 16384"]),
        ([LBF, "--width", "6.5"], ["--width", "whole number"]),
        ([LBF, "--width", "8", "--budget", "1000"], ["--budget", "--width"]),
        ([LBF, "--budget", "0"], ["--budget", "nearest valid value is 1"]),
        ([LBF, "--budget", "-20"], ["--budget", "nearest valid value is 1"]),
        ([LBF, "--method", "prsim"], ["prsim", "'prism'"]),
        ([LBF, "--mehtod", "prism"], ["--mehtod", "--method"]),
        (["lbf/10x10-3p-3", "--method", "prism"], ["task", LBF]),
        (["mamujoco/ant-4x3"], ["task", "ant-4x2"]),
        (["smac2/terran_5_vs_5"], ["task", "smacv2/terran_5_vs_5"]),
        ([LBF, "--method", "prism", "--sharing.common", "1.5"], ["sharing.common", "nearest valid value is 1.0"]),
        ([LBF, "--method", "prism", "--sharing.common", "-0.1"], ["sharing.common", "nearest valid value is 0.0"]),
        ([LBF, "--method", "prism", "--sharing.common", "half"], ["sharing.common", "number"]),
        ([LBF, "--method", "prism", "--sharing.comon", "0.5"], ["sharing.comon", "'--sharing.common'"]),
        ([LBF, "--method", "prism", "--network.width", "5"], ["--network.width", "--width"]),
        ([LBF, "--sharing.common", "0.5"], ["sharing.common", "--method prism"]),
        (["--plot", "scaling.jpg"], ["--plot", "'scaling.png'"]),
        (["--plot", "/dev/null/scaling.png"], ["--plot", "cannot be written"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_answered_in_one_sentence(prism_marl, argv, words):
    code, out, err = prism_marl(*argv)
    assert code == 2
    assert out == ""
    assert err.startswith("prism-marl: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_a_folder_is_not_a_figure(prism_marl, tmp_path):
    code, _, err = prism_marl("--plot", str(tmp_path))
    assert code == 2
    assert f"'{tmp_path / 'scaling.png'}'" in err


def test_table_shows_every_method(prism_marl):
    code, out, err = prism_marl(LBF)
    assert (code, err) == (0, "")
    for settings in METHODS.values():
        assert settings.label in out
    assert "44,082" in out  # Prism at width 64


def test_json_has_the_same_numbers(prism_marl):
    code, out, _ = prism_marl(LBF, "--method", "prism", "snp", "prism", "--width", "64", "--json")
    answer = json.loads(out)
    assert code == 0
    assert [row["method"] for row in answer["methods"]] == ["prism", "snp"]
    prism = answer["methods"][0]
    assert prism["parameters"] == prism["shared"] + prism["private"] == 44_082
    assert prism["private_per_agent"] == prism["private"] / 3 == 60
    assert prism["overhead"] == pytest.approx(180 / 44_082)
    assert prism["settings"]["common"] == 0.6


def test_all_methods_and_the_task_after_the_methods(prism_marl):
    everything = json.loads(prism_marl(LBF, "--method", "all", "--width", "8", "--json")[1])
    assert [row["method"] for row in everything["methods"]] == list(METHODS)
    code, out, _ = prism_marl("--json", "--method", "prism", LBF)
    assert code == 0
    assert json.loads(out)["task"] == LBF


def test_settings_of_one_method_can_be_changed(prism_marl):
    code, out, _ = prism_marl(LBF, "--method", "prism", "--sharing.common", "1.0", "--json")
    assert code == 0
    assert json.loads(out)["methods"][0]["private"] == 0


def test_budget_is_solved_for_each_method(prism_marl):
    code, out, _ = prism_marl("smacv2/terran_5_vs_5", "--method", "nops", "prism", "--budget", "196_535", "--json")
    assert code == 0
    nops, prism = json.loads(out)["methods"]
    assert (nops["width"], nops["off_budget"], nops["note"]) == (64, 0, "")
    assert abs(prism["off_budget"]) < 2_000
    code, out, _ = prism_marl(LBF, "--method", "nops", "--budget", "3")
    assert code == 0
    assert "out of reach" in out


def test_paper_agrees(prism_marl):
    code, out, _ = prism_marl("--paper")
    assert code == 0
    assert "48 of 48 numbers agree" in out
    assert out.count(" equal") == 48
    code, out, _ = prism_marl("--paper", "--json")
    assert code == 0
    answer = json.loads(out)["paper"]
    assert answer["agrees"] is True
    assert len(answer["cells"]) == 48


@pytest.mark.parametrize("doctored", ["count", "ratio"])
def test_a_doctored_paper_is_noticed(prism_marl, monkeypatch, doctored):
    tables = budgets.published()
    if doctored == "count":
        tables["budget"]["mamujoco/ant-4x2"]["half"]["prism"] += 1
    else:
        tables["agent_scaling"]["128"]["snp"] += 0.0001
    monkeypatch.setattr(budgets, "published", lambda: tables)
    code, out, err = prism_marl("--paper")
    assert (code, err) == (1, "")
    assert "47 of 48 numbers agree" in out
    assert out.count("DIFFERS") == 1
    code, out, _ = prism_marl("--paper", "--json")
    assert code == 1
    wrong = [cell for cell in json.loads(out)["paper"]["cells"] if not cell["agrees"]]
    assert len(wrong) == 1


def test_plot_is_written_and_described(prism_marl, tmp_path):
    path = tmp_path / "scaling.png"
    code, out, _ = prism_marl("--plot", str(path), "--json")
    assert code == 0
    answer = json.loads(out)["scaling"]
    assert answer["file"] == str(path)
    assert {point["agents"] for point in answer["points"]} >= {2, 1024}
    assert path.read_bytes().startswith(b"\x89PNG")
