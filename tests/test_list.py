"""``prism-marl list`` shows what is registered, whatever that is."""

import json

from prism_marl import cli
from prism_marl.envs import describe
from prism_marl.envs.registry import families
from prism_marl.experiment.presets import VARIANTS
from prism_marl.sharing import METHODS


def test_tables_name_everything(capsys):
    assert cli.main(["list"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for name, settings in METHODS.items():
        assert name in out
        assert settings.label in out
    for family in families().values():
        assert all(example in out for example in family.examples)
    assert all(variant in out for variant in VARIANTS)


def test_json_holds_the_registries(capsys):
    assert cli.main(["list", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in known["methods"]] == list(METHODS)
    assert all(row["about"] and row["label"] for row in known["methods"])
    assert [row["family"] for row in known["tasks"]] == list(families())
    assert {row["name"]: row["changes"] for row in known["presets"]} == VARIANTS
    for row in known["tasks"]:
        for example in row["examples"]:
            assert describe(example).agents > 0  # every example is a real task


def test_unknown_words_are_refused(capsys):
    assert cli.main(["list", "--jsno"]) == 2
    err = capsys.readouterr().err
    assert "'--json'" in err
    assert err.count("\n") == 1
