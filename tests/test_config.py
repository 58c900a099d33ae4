"""Settings: they survive JSON, wrong ones are named in one sentence, and presets are the paper's tables."""

import copy
import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_marl.errors import UserError
from prism_marl.experiment import config
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import method_settings, preset
from prism_marl.sharing import METHODS

LBF = "lbf/10x10-3p-3f"
BASE = preset(LBF, "prism")


def refused(function, *arguments) -> str:
    with pytest.raises(UserError) as error:
        function(*arguments)
    assert "\n" not in str(error.value) and error.value.code == 2
    return str(error.value)


def changed(path: str, value) -> str:
    """The JSON of the base experiment with one field replaced."""
    data = json.loads(BASE.to_json())
    *way, name = path.split(".")
    place = data
    for step in way:
        place = place[step]
    place[name] = value
    return json.dumps(data)


@pytest.mark.parametrize("task", [LBF, "roles/4", "smacv2/terran_5_vs_5"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_survives_json(task, method):
    experiment = preset(task, method).with_option("learner.lr", "0.1").with_option("run.seed", "2147483647")
    again = Experiment.from_json(experiment.to_json())
    assert again == experiment and type(again.sharing) is METHODS[method]
    assert again.to_json() == experiment.to_json()


def test_missing_fields_keep_their_defaults_and_missing_tags_are_named():
    assert Experiment.from_json(json.dumps({"format": 1, "task": "x", "sharing": {"method": "fups"},
                                            "learner": {"algorithm": "qmix"}})).run.steps == 3_000_000  # fmt: skip
    assert "sharing.method: this field is missing" in refused(Experiment.from_json, '{"format": 1, "task": "x"}')
    assert "task: expected text" in refused(Experiment.from_json, '{"format": 1}')


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("run.stepz", 3, ["run.stepz", "'steps'"]),
        ("sharing.comon", 0.5, ["sharing.comon", "'common'"]),
        ("lerner", {}, ["lerner", "'learner'"]),
        ("sharing.method", "prsim", ["sharing.method", "'prism'"]),
        ("sharing.method", 7, ["sharing.method"]),
        ("learner.algorithm", "qmx", ["learner.algorithm", "'qmix'"]),
        ("run.steps", "3", ["run.steps", "whole number"]),
        ("run.steps", 2.5, ["run.steps", "whole number", "nearest is 2"]),
        ("run.steps", True, ["run.steps", "whole number"]),
        ("run.steps", None, ["run.steps"]),
        ("run.steps", 10**400, ["run.steps", "too large"]),
        ("run.steps", 1e300, ["run.steps", "too large"]),
        ("learner.lr", 10**4200, ["learner.lr", "too large"]),
        ("learner.lr", float("nan"), ["learner.lr", "number, got nan"]),
        ("learner.lr", float("-inf"), ["learner.lr", "number, got -inf"]),
        ("learner.last_action", 1, ["learner.last_action", "true or false"]),
        ("sharing.masks", "agents", ["sharing.masks", "'agent'"]),
        ("sharing.masks", ["agent"], ["sharing.masks"]),
        ("network", 8, ["network", "object"]),
        ("run", [], ["run", "object"]),
        ("task", 5, ["task", "text"]),
        ("format", 99, ["format 99"]),
        ("ключ\u2028", "ü\n", ["ключ"]),
    ],
)
def test_wrong_fields_are_named(path, value, words):
    text = changed(path, value)
    with pytest.raises(UserError) as error:
        Experiment.from_json(text)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert len(str(error.value)) < 1_000


@pytest.mark.parametrize("depth", [900, 960, 985, 995, 100_000])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")], ids=["list", "object"])
def test_deep_nesting_is_refused(depth, brackets):
    inner = "1" if brackets[0] != "[" else ""
    nested = brackets[0] * depth + inner + brackets[1] * depth
    refused(Experiment.from_json, nested)
    refused(Experiment.from_json, changed("run.steps", 0).replace('"steps": 0', f'"steps": {nested}'))


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "3", '"x"', "\ufeff{}", '{"format": 1e999}', "\x00"])
def test_what_is_no_experiment_is_refused(text):
    assert "config.json" in refused(Experiment.from_json, text)


LARGE = [(path, value) for path, value, _ in config.options(BASE) if type(value) in (int, float)]


@pytest.mark.parametrize("path", [path for path, _ in LARGE])
def test_what_the_compiled_program_cannot_hold_is_refused(path):
    text = "3000000000" if type(dict(LARGE)[path]) is int else "1e39"
    message = refused(lambda: BASE.with_option(path, text).validate())
    assert path in message


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("network.width", "0"), ("network.width", "16385"), ("run.seeds", "0"), ("run.seed", "-1"), ("run.envs", "0"),
        ("run.eval_every", "0"), ("run.eval_episodes", "0"), ("run.steps", "0"), ("run.steps", "2000000001"),
        ("learner.lr", "0"), ("learner.clip", "-1"), ("learner.batch", "0"), ("learner.batch", "5001"),
        ("learner.gamma", "1.01"), ("learner.td_lambda", "-0.1"), ("learner.epsilon_finish", "2"),
        ("sharing.common", "-1"), ("sharing.window", "0"), ("sharing.reset_ratio", "2"), ("run.envs", "5001"),
    ],
)  # fmt: skip
def test_values_out_of_range_are_named(path, text):
    assert path in refused(lambda: BASE.with_option(path, text).validate())


def test_environments_must_fit_the_updates():
    battle = preset("smacv2/terran_5_vs_5", "prism").with_option("run.envs", "6")
    assert "nearest valid value is 8" in refused(battle.validate)
    for envs in ("1", "2", "4", "8", "12"):
        battle.with_option("run.envs", envs).validate()


def test_equal_experiments_share_a_folder_and_others_do_not(tmp_path):
    assert BASE.folder(tmp_path) == preset(LBF, "prism").folder(tmp_path)
    folders = {BASE.with_option(path, "1").folder(tmp_path) for path, value in LARGE if value != 1}
    assert len(folders | {BASE.folder(tmp_path)}) == sum(value != 1 for _, value in LARGE) + 1


def test_options_name_every_field_and_explain_it():
    for method in METHODS:
        experiment = preset(LBF, method)
        listed = {path: about for path, _, about in config.options(experiment)}
        for group in ("sharing", "learner", "network", "run"):
            part = getattr(experiment, group)
            names = {field.name for field in dataclasses.fields(part)} - {"method", "algorithm", "extended_from"}
            assert {f"{group}.{name}" for name in names} == {path for path in listed if path.startswith(f"{group}.")}
            assert all(listed[f"{group}.{name}"] for name in names), method


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
PLACES = [path for path, _, _ in config.options(BASE)] + [
    "sharing",
    "learner",
    "run",
    "network",
    "sharing.method",
    "x.y",
]
WORDS = (
    st.text(max_size=20) | st.integers().map(str) | st.floats().map(str) | st.sampled_from(["", "none", "1e999", "-0"])
)
QUICK = settings(max_examples=100, deadline=None, database=None)


@QUICK
@given(st.sampled_from(PLACES) | st.text(max_size=20), WORDS)
def test_any_words_give_settings_or_one_sentence(path, text):
    try:
        experiment = config.override(BASE, path, text)
        if path != "task":
            experiment.validate()
    except UserError as error:
        assert str(error)


@QUICK
@given(JSON, st.sampled_from(PLACES[:-1]) | st.sampled_from(["format", "extra"]))
def test_any_json_gives_settings_or_one_sentence(value, path):
    data = copy.deepcopy(json.loads(BASE.to_json()))
    *way, name = path.split(".")
    place = data
    for step in way:
        place = place[step]
    place[name] = value
    for text in (json.dumps(value), json.dumps(data)):
        try:
            experiment = Experiment.from_json(text)
            if path != "task":
                experiment.validate()
        except UserError as error:
            assert str(error)


# Typed from the paper's hyper-parameter tables; what they do not print is from the code base they build on.
TABLES = {
    LBF: {
        "learner.epsilon_start": 1.0, "learner.epsilon_finish": 0.05, "learner.epsilon_anneal": 50_000,
        "learner.buffer": 5_000, "learner.batch": 32, "learner.lr": 0.0005, "learner.clip": 10.0,
        "learner.gamma": 0.99, "learner.td_lambda": 0.6, "learner.target_interval": 200, "learner.embed": 32,
        "learner.hypernet": 64, "learner.episodes_per_update": 1, "learner.last_action": False,
        "learner.time_limit_ends": True, "learner.half_loss": True, "learner.target_rate": 0.0,
        "network.width": 64, "run.steps": 3_000_000, "run.envs": 1, "run.eval_every": 50_000, "run.eval_episodes": 100,
    },
    "smacv2/terran_5_vs_5": {
        "learner.epsilon_start": 1.0, "learner.epsilon_finish": 0.05, "learner.epsilon_anneal": 100_000,
        "learner.buffer": 5_000, "learner.batch": 128, "learner.lr": 0.001, "learner.clip": 10.0,
        "learner.gamma": 0.99, "learner.td_lambda": 0.6, "learner.target_interval": 50, "learner.embed": 32,
        "learner.hypernet": 64, "learner.episodes_per_update": 4, "learner.last_action": True,
        "learner.time_limit_ends": False, "learner.half_loss": True, "learner.standardise_rewards": False,
        "network.width": 64, "run.steps": 5_000_000, "run.envs": 4, "run.eval_every": 10_000, "run.eval_episodes": 32,
    },
    "mamujoco/ant-4x2": {
        "learner.actor_lr": 0.0005, "learner.critic_lr": 0.001, "learner.gamma": 0.99, "learner.batch": 1_000,
        "learner.buffer": 1_000_000, "learner.n_step": 5, "learner.policy_freq": 2, "learner.explore": 0.1,
        "learner.target_noise": 0.2, "learner.target_clip": 0.5, "learner.tau": 0.005, "learner.n_critics": 5,
        "learner.warmup": 10_000, "learner.train_interval": 50, "learner.updates": 50, "learner.critic_width": 256,
        "learner.critic_layernorm": True, "learner.actor_q": "mean", "learner.overlap": False, "run.envs": 10,
        "network.width": 256, "run.steps": 10_000_000, "run.eval_every": 100_000, "run.eval_episodes": 40,
    },
}  # fmt: skip
METHOD_TABLES = {
    LBF: {
        "prism": {"common": 0.6, "ortho": 0.01, "diversity": 5.0, "masks": "agent"},
        "kaleidoscope": {"diversity": 0.5, "reset_interval": 200_000, "reset_ratio": 0.1, "masks": "agent"},
        "seps": {"clusters": 2}, "adaps": {"clusters": 2, "ratio": 0.1}, "snp": {"ratio": 0.1},
    },
    "smacv2/zerg_5_vs_5": {
        "prism": {"common": 0.5, "ortho": 0.01, "diversity": 5.0, "masks": "role"},
        "kaleidoscope": {"diversity": 5.0, "reset_interval": 1_000_000, "reset_ratio": 0.2, "masks": "role"},
        "seps": {"clusters": 3}, "adaps": {"clusters": 3, "ratio": 0.1}, "snp": {"ratio": 0.1},
    },
    "mamujoco/ant-4x2": {
        "prism": {"common": 0.5, "ortho": 0.01, "diversity": 0.1, "masks": "agent"},
        "kaleidoscope": {"diversity": 0.1, "reset_interval": 1_000_000, "reset_ratio": 0.5, "masks": "agent"},
        "seps": {"clusters": 2}, "adaps": {"clusters": 2, "ratio": 0.1}, "snp": {"ratio": 0.1},
    },
}  # fmt: skip


@pytest.mark.parametrize("task", TABLES)
def test_presets_are_the_papers_tables(task):
    found = {path: value for path, value, _ in config.options(preset(task, "prism", "paper"))}
    assert {path: found[path] for path in TABLES[task]} == TABLES[task]


@pytest.mark.parametrize("task", METHOD_TABLES)
def test_methods_are_set_as_in_the_paper(task):
    for method, table in METHOD_TABLES[task].items():
        found = dataclasses.asdict(method_settings(task, method))
        assert {name: found[name] for name in table} == table


def test_the_default_of_foraging_is_the_one_that_learns_and_of_all_else_the_paper():
    for task in (LBF, "lbforaging/10x10-3p-3f"):
        assert preset(task, "prism") == preset(task, "prism", "epymarl-tuned") != preset(task, "prism", "paper")
    learner = preset(LBF, "prism").learner
    assert (learner.td_lambda, learner.half_loss, learner.target_rate) == (0.0, False, 0.01)
    assert (learner.lr, learner.epsilon_anneal, learner.standardise_rewards) == (3e-4, 200_000, True)
    for task in ("skirmish/terran_5_vs_5", "roles/4", "reach/3"):
        assert preset(task, "prism") == preset(task, "prism", "paper")
    ours, paper = (preset("mamujoco/ant-4x2", "prism", name).learner for name in ("default", "paper"))
    assert not ours.warmup_on_top and dataclasses.replace(ours, warmup_on_top=True) == paper  # random steps on top


@pytest.mark.parametrize("task", [LBF, "skirmish/terran_5_vs_5", "mamujoco/ant-4x2", "roles/4", "reach/3"])
def test_masks_that_agree_are_left_alone_everywhere(task):
    sharing = preset(task, "prism").sharing
    assert (sharing.ties, sharing.threshold_init) == ("still", "own")


def test_critics_of_robots_have_layernorm_unless_the_preset_says_otherwise():
    for task in ("mamujoco/ant-4x2", "mamujoco/swimmer-10x2", "reach/3"):
        for method in METHODS:
            assert preset(task, method).learner.critic_layernorm
        plain = preset(task, "fups", "plain-critics").learner
        assert not plain.critic_layernorm
        # of the first edition, which made its random steps on top of run.steps
        assert plain == dataclasses.replace(
            preset(task, "fups", "paper").learner, critic_layernorm=False, warmup_on_top=True
        )
    assert preset("mamujoco/ant-4x2", "prism", "paper_table").learner.critic_layernorm


def test_variants_change_what_they_say_and_nothing_else():
    paper = preset(LBF, "prism", "paper")
    control = preset(LBF, "prism", "epymarl").learner
    assert (control.td_lambda, control.half_loss, control.standardise_rewards) == (0.0, False, True)
    assert dataclasses.replace(control, td_lambda=0.6, half_loss=True) == paper.learner
    assert preset(LBF, "prism", "table").learner == dataclasses.replace(paper.learner, standardise_rewards=False)
    assert "'epymarl'" in refused(preset, LBF, "prism", "epymral")


# Tuned values of the code base behind the robots: n_step and policy_freq.
ROBOTS = {
    "ant-4x2": (5, 2), "halfcheetah-2x3": (10, 2), "hopper-3x1": (5, 2), "walker2d-2x3": (20, 8),
    "walker2d-6x1": (25, 2), "swimmer-10x2": (10, 2), "swimmer-128x2": (10, 2),
}  # fmt: skip


@pytest.mark.parametrize("robot", ROBOTS)
def test_robots_have_their_tuned_values_or_the_tables(robot):
    task = f"mamujoco/{robot}"
    tuned, table = (preset(task, "prism", name).learner for name in ("paper", "paper-table"))
    assert (tuned.n_step, tuned.policy_freq) == ROBOTS[robot]
    assert dataclasses.replace(tuned, n_step=5, policy_freq=2) == table


@pytest.mark.parametrize("method", METHODS)
def test_robots_survive_json_and_explain_their_fields(method):
    experiment = preset("mamujoco/walker2d-2x3", method).with_option("learner.overlap", "true")
    experiment.validate()
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert all(about for path, _, about in config.options(experiment) if "." in path)


def test_variants_and_learners_that_do_not_fit_a_task_are_refused():
    message = refused(preset, "mamujoco/ant-4x2", "prism", "epymarl")
    assert "'epymarl' is not for 'mamujoco/ant-4x2', which is trained with matd3" in message
    assert message.endswith("try default, paper, paper_table, plain_critics")
    assert "trained with qmix" in refused(preset, LBF, "prism", "paper_table")
    robot, field = preset("mamujoco/ant-4x2", "prism"), BASE
    assert "MATD3 needs continuous actions" in refused(field.changed(learner=robot.learner).validate)
    assert "QMIX needs discrete actions" in refused(robot.changed(learner=field.learner).validate)
    assert "nearest valid value is 1000002" in refused(robot.with_option("run.envs", "3").validate)


@pytest.mark.parametrize("learner", ["mappo", "ippo"])
@pytest.mark.parametrize("task", ["roles/4", LBF, "skirmish/terran_5_vs_5", "mamujoco/walker2d-2x3", "reach/3"])
def test_presets_of_on_policy_learners_are_valid_and_survive_json(task, learner):
    for method in METHODS:
        experiment = preset(task, method, learner=learner)
        experiment.validate()
        assert experiment.learner.algorithm == learner and Experiment.from_json(experiment.to_json()) == experiment
    walker = preset("mamujoco/walker2d-2x3", "prism", learner=learner)
    assert walker.learner.actor_lr == 1e-3 and walker.learner.lr_decay and walker.sharing.diversity == 0.1
