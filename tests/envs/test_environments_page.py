"""docs/environments.md says what the code does: tables are generated, and this test says what to paste."""

from pathlib import Path

import pytest

from prism_marl.envs import describe, diversity, families
from prism_marl.envs.lbf import Foraging, make_lbf
from prism_marl.envs.mamujoco.fields import fields
from prism_marl.envs.mamujoco.tasks import Task, find_task
from prism_marl.experiment.presets import preset

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def table(env: Foraging) -> str:
    """The observation of one agent as a table."""
    rows = ["| index | name | from | to | meaning |", "|---|---|---|---|---|"]
    rows += [f"| {f.index} | `{f.name}` | {f.low} | {f.high} | {f.meaning} |" for f in env.fields()]
    return "\n".join(rows)


def robot_table(task: Task) -> str:
    """What everybody observes; the contacts of Ant, which are all alike, take one line."""
    rows = ["| index | name | moved by agent | meaning |", "|---|---|---|---|"]
    shown = [f for f in fields(task) if not f.name.startswith("contact.")]
    rows += [f"| {f.index} | `{f.name}` | {'' if f.agent is None else f.agent} | {f.meaning} |" for f in shown]
    hidden = fields(task)[len(shown) :]
    if hidden:
        first, last = hidden[0], hidden[-1]
        rows += [f"| {first.index} to {last.index} | `{first.name}` to `{last.name}` | | {first.meaning} |"]
    return "\n".join(rows)


ROBOTS = ("ant-4x2", "halfcheetah-2x3", "hopper-3x1", "walker2d-2x3", "swimmer-2x2")
TABLES = {"lbf/10x10-3p-3f": lambda: table(make_lbf("10x10-3p-3f"))} | {
    f"mamujoco/{variant}": lambda variant=variant: robot_table(find_task(variant)) for variant in ROBOTS
}


@pytest.mark.parametrize("task", TABLES)
def test_the_fields_of_an_observation_are_those_of_the_code(task: str):
    text = PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(f"<!-- fields of {task}:")
    held = rest.partition("-->\n")[2].partition("\n<!-- end of fields -->")[0]
    wanted = TABLES[task]()
    assert held == wanted, f"paste this into {PAGE.name}:\n{wanted}"


@pytest.mark.parametrize("learner", ["qmix", "mappo"])
def test_every_compiled_task_can_be_trained_by_its_preset(learner: str):
    for name, family in families().items():
        for task in family.examples:
            if family.make is not None and describe(task).kind == "discrete":
                experiment = preset(task, "prism", learner=learner)
                experiment.validate()
                assert not experiment.warnings(), name


def test_the_needs_for_diversity_are_those_of_the_code():
    """Sampled numbers are printed with two digits, which the seed of the sample decides."""
    held = PAGE.read_text(encoding="utf-8").partition("<!-- needs:")[2].partition("-->\n")[2]
    rows = ["| task | alike | unlike | need | one random policy |", "|---|---|---|---|---|"]
    for family in families().values():
        for task in family.examples:
            found = diversity(task)
            if found is not None:
                known = {"exact": "", "sampled": " (sampled)"}.get(found.known, f" ({found.known})")
                chance = "" if found.random is None else f"{found.random:.2f}"
                rows.append(
                    f"| `{task}` | {found.alike:.2f} | {found.unlike:.2f} | {found.need:.2f}{known} | {chance} |"
                )
    wanted = "\n".join(rows)
    assert held.partition("\n<!-- end of needs -->")[0] == wanted, f"paste this into {PAGE.name}:\n{wanted}"


def test_every_family_has_its_place():
    text = PAGE.read_text(encoding="utf-8")
    for name, family in families().items():
        assert f"`{name}`" in text or f"`{name}/" in text, name
        if family.make is not None or family.rows is not None:
            assert f"\n## {name}\n" in text, name
