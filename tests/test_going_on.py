"""Runs go on: a finished one to a larger budget, another one's networks in a larger team."""

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_marl import api, cli
from prism_marl.errors import UserError
from prism_marl.experiment import config
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.runs import checkpoint, runner
from prism_marl.runs.folder import extend, load_experiment
from prism_marl.runs.trained import load_trained
from prism_marl.sharing import METHODS
from prism_marl.sharing.freeze import private_names, private_only, private_part
from prism_marl.training.build import make_trainer
from tiny import rows_of, small


@pytest.fixture
def prism_marl(capsys):
    def call(*argv):
        code = cli.main(list(argv))
        out, err = capsys.readouterr()
        return code, out, err

    return call


def roles(method: str = "fups", agents: int = 2, **changes: str) -> Experiment:
    return small(f"roles/{agents}", method, **{"run__steps": "60", "run__eval_every": "30", **changes})


def final(folder):
    return checkpoint.paths(folder / "checkpoints")[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return runner.run(roles(), tmp_path_factory.mktemp("going on") / "a run")


def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "a run")


def test_an_extended_run_ends_as_one_that_had_the_larger_budget_from_the_start(finished, tmp_path):
    folder = copy(finished, tmp_path)
    assert api.extend(folder, steps=120, progress=False).finished
    whole = runner.run(roles(run__steps="120"), tmp_path / "whole")
    for name in ("eval", "train"):
        assert rows_of(folder, name) == rows_of(whole, name)
    one, other = (checkpoint.safetensors.numpy.load_file(final(path)) for path in (folder, whole))
    assert all(np.array_equal(one[name], other[name]) for name in one | other)
    recorded = json.loads((folder / "config.json").read_text())["run"]
    assert (recorded["steps"], recorded["extended_from"]) == (120, [60])
    assert load_experiment(folder) == replace_run(roles(), steps=120, extended_from=(60,))


def replace_run(experiment: Experiment, **fields) -> Experiment:
    return experiment.changed(run=replace(experiment.run, **fields))


def test_the_same_extension_can_be_asked_for_until_it_is_done(finished, tmp_path, monkeypatch):
    folder = copy(finished, tmp_path)
    extend(folder, 90)  # and killed here
    assert not (folder / "done").exists()
    assert extend(folder, 90).run.extended_from == (60,)
    with pytest.raises(UserError, match="has not reached its 90 steps"):
        extend(folder, 120)
    api.extend(folder, steps=90, progress=False)
    api.train(load_experiment(folder), out=folder, progress=False)  # finished: nothing changes
    assert [row["step"] for row in rows_of(folder)][-1] >= 90
    with pytest.raises(UserError, match="has 90 steps; give a larger total"):
        extend(folder, 60)
    assert extend(folder, 120).run.extended_from == (60, 90)


def test_an_old_folder_without_the_record_is_extended_too(finished, tmp_path):
    folder = copy(finished, tmp_path)
    content = json.loads((folder / "config.json").read_text())
    assert content["run"].pop("extended_from") == []
    (folder / "config.json").write_text(json.dumps(content))
    assert api.extend(folder, steps=90, progress=False).finished  # its checkpoints are still its own


def test_another_experiment_lists_what_differs_and_takes_nothing_away(finished, tmp_path):
    folder = copy(finished, tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as error:
        runner.run(roles(run__steps="70", learner__lr="0.5"), folder)
    words = str(error.value)
    assert "learner.lr is 0.003 there and 0.5 here" in words and "run.steps is 60 there and 70 here" in words
    assert "--extend" not in words and "delete" not in words and "remove" not in words
    with pytest.raises(UserError, match="or continue that run with --extend 70"):
        runner.run(roles(run__steps="70"), folder)
    with pytest.raises(UserError, match=r"sharing\.method is fups there and nops here"):
        runner.run(roles("nops"), folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_command_line_extends(prism_marl, finished, tmp_path):
    folder = copy(finished, tmp_path)
    assert prism_marl("train", "--extend", "0.09k", "--out", str(folder))[0] == 0
    assert load_experiment(folder).run.steps == 90
    for words, complaint in (
        (["--extend", "100"], "--out FOLDER"),
        (["roles/2", "--extend", "100", "--out", str(folder)], "keeps its own settings; leave out roles/2"),
        (["--extend", "100", "--seeds", "3", "--out", str(folder)], "leave out --run.seeds"),
        (["--extend", "100", "--from", str(finished), "--out", str(folder)], "leave out --from"),
        ([], "task: name one"),
        (["roles/2", "--freeze", "shared"], "--from"),
    ):
        code, _, err = prism_marl("train", *words)
        assert code == 2 and complaint in err


@pytest.mark.parametrize(
    ("text", "number"),
    [("3M", 3_000_000), ("500k", 500_000), ("1e6", 1_000_000), ("2.5m", 2_500_000), ("1_000", 1000), ("1G", 10**9)],
)
def test_numbers_as_people_write_them(text, number):
    read = config.read_number(text)
    assert read is not None and read == number
    assert roles().with_option("run.steps", text).run.steps == number


@pytest.mark.parametrize("text", ["M", "k", "3MM", "x3k", "1e", "", "3 M k", "--3k"])
def test_words_that_are_no_numbers(text):
    assert config.read_number(text) is None


# Beginning with another run's networks


@pytest.mark.parametrize("method", METHODS)
def test_only_what_belongs_to_single_agents_has_a_gradient(method):
    sharing = METHODS[method]()
    network = sharing.linear(3, 4, identities=2, key=jax.random.key(0), kind="hidden", depth=0)
    ones = jax.tree.map(lambda leaf: leaf * 0 + 1, network)
    kept = private_only(sharing).constrain(ones, 0)
    own = private_names(network)
    for path, leaf in jax.tree_util.tree_leaves_with_path(kept):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        assert (np.asarray(leaf) == (name in own)).all()
    assert private_only(sharing) == private_only(sharing) and private_part(kept) is not None


GROWN = "lbf/5x5-{}p-1f-places4"


def team(players: int, method: str, **changes: str) -> Experiment:
    return small(GROWN.format(players), method, run__steps="200", run__eval_every="100", **changes)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return runner.run(team(2, "prism", run__seeds="2"), tmp_path_factory.mktemp("pair") / "run")


def agents_of(folder):
    trainer, state, _ = load_trained(folder)
    return trainer.learner.agent(state.seeds.state), trainer


def test_a_team_grows_by_private_numbers_alone(pair, tmp_path):
    grown = api.train(team(4, "prism"), out=tmp_path / "grown", begin_from=pair, freeze="shared", progress=False).folder
    before, _ = agents_of(pair)
    after, trainer = agents_of(grown)
    own = private_names(after)
    leaves = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    moved = set()
    for (path, old), new in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if name in own:
            assert new.shape[1] == 4 and old.shape[1] == 2
            moved |= {name} if np.any(np.asarray(old[:1]) != np.asarray(new[:, :2])) else set()
        else:
            np.testing.assert_array_equal(old[:1], new)
    assert moved and trainer.experiment.start.freeze == "shared"


def test_a_grown_run_continues_bit_by_bit_and_keeps_its_start(pair, tmp_path, monkeypatch):
    experiment = team(3, "prism")
    whole = api.train(experiment, out=tmp_path / "whole", begin_from=pair, progress=False).folder
    monkeypatch.setattr(runner._Session, "_evaluate", killed)
    with pytest.raises(KeyboardInterrupt):
        api.train(experiment, out=tmp_path / "killed", begin_from=pair, progress=False)
    monkeypatch.undo()
    again = api.train(experiment, out=tmp_path / "killed", begin_from=pair, progress=False).folder
    assert rows_of(again) == rows_of(whole) and rows_of(again, "train") == rows_of(whole, "train")
    assert load_experiment(again) == load_experiment(whole) != experiment
    (whole / "start.safetensors").write_bytes(b"")
    for path in (whole / "checkpoints").iterdir():
        path.unlink()
    for name in ("eval", "train", "timing"):
        (whole / f"{name}.jsonl").unlink()
    with pytest.raises(UserError, match="the initial networks of this run cannot be read"):
        runner.run(load_experiment(whole), whole)


def killed(self, state):
    raise KeyboardInterrupt


def test_what_cannot_begin_with_another_run_is_refused_before_anything_is_written(pair, tmp_path):
    for experiment, freeze, words in (
        (small("lbf/5x5-3p-1f", "prism"), "nothing", "train both on a task with fixed places"),
        (team(4, "nops"), "nothing", "was trained with Prism, this is NoPS; add --sharing prism"),
        (team(4, "prism", network__width="16"), "nothing", "widths differ"),
    ):
        with pytest.raises(UserError, match=words):
            api.train(experiment, out=tmp_path / "out", begin_from=pair, freeze=freeze, progress=False)
    assert not (tmp_path / "out").exists()


def test_places_leave_the_game_as_it_is():
    from prism_marl import envs

    plain, roomy = envs.make("lbf/5x5-2p-1f"), envs.make("lbf/5x5-2p-1f-places4")
    one, first = plain.reset(jax.random.key(3))
    two, second = roomy.reset(jax.random.key(3))
    size = plain.spec.observation
    np.testing.assert_array_equal(second.local[:, :size], first.local)
    np.testing.assert_array_equal(second.local[:, size:], np.tile([-1, -1, 0], (2, 2)))
    assert second.state.shape == (roomy.spec.state,) and roomy.spec.ids == 4
    assert len(roomy.fields()) == roomy.spec.observation
    action = np.array([1, 5])
    assert plain.step(jax.random.key(0), one, action)[1].reward == roomy.step(jax.random.key(0), two, action)[1].reward
    with pytest.raises(UserError, match=r"has places 1, not 2 \(its agents\) to 64; try 2"):
        envs.make("lbf/5x5-2p-1f-places1")


@pytest.mark.parametrize("learner", ["qmix", "mappo"])
def test_every_learner_builds_networks_for_the_places(learner):
    """Ids are as long as the team can become, in the networks and in what they read."""
    trainer = make_trainer(preset(GROWN.format(2), "fups_id", learner=learner).with_option("network.width", "8"))
    agent = trainer.learner.agent(trainer.shapes().seeds.state)
    layer = agent.fc1 if hasattr(agent, "fc1") else agent.layers[0]
    assert layer.weight.shape[-1] == 3 * (1 + 4) + 4


def test_battles_have_places_too():
    from prism_marl import envs

    plain, roomy = envs.make("skirmish/terran_3_vs_2"), envs.make("skirmish/terran_3_vs_2-places5")
    first, second = (jax.jit(env.reset)(jax.random.key(3))[1] for env in (plain, roomy))
    names = [envs.meaning(env.spec.name).observation_names for env in (plain, roomy)]
    assert [len(one) for one in names] == [plain.spec.observation, roomy.spec.observation]
    there = [names[1].index(name) for name in names[0]]
    np.testing.assert_array_equal(second.local[:, there], first.local)
    absent = [place for place, name in enumerate(names[1]) if name.startswith(("ally2", "ally3"))]
    assert len(absent) == 2 * 8 and not np.asarray(second.local)[:, absent].any()
    np.testing.assert_array_equal(second.state, first.state)
    assert roomy.spec.ids == 5 and roomy.spec.name == "skirmish/terran_3_vs_2-places5"
