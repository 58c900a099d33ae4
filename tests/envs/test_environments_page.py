"""docs/environments.md says what the code does: tables are generated, and this test says what to paste."""

from pathlib import Path

from prism_marl.envs import families
from prism_marl.envs.lbf import Foraging, make_lbf

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def table(env: Foraging) -> str:
    """The observation of one agent as a table."""
    rows = ["| index | name | from | to | meaning |", "|---|---|---|---|---|"]
    rows += [f"| {f.index} | `{f.name}` | {f.low} | {f.high} | {f.meaning} |" for f in env.fields()]
    return "\n".join(rows)


def test_the_fields_of_an_observation_are_those_of_the_code():
    task = "lbf/10x10-3p-3f"
    text = PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(f"<!-- fields of {task}:")
    held = rest.partition("-->\n")[2].partition("\n<!-- end of fields -->")[0]
    wanted = table(make_lbf(task.partition("/")[2]))
    assert held == wanted, f"paste this into {PAGE.name}:\n{wanted}"


def test_every_family_has_its_place():
    text = PAGE.read_text(encoding="utf-8")
    for name, family in families().items():
        assert f"`{name}`" in text or f"`{name}/" in text, name
        if family.make is not None:
            assert f"\n## {name}\n" in text, name
