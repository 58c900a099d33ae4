"""The orchard in the page: its rules are the game's, masks change hands, and directions are measured."""

import json
from typing import Any

import jax
import numpy as np
import pytest
from teams import make, policy_of

from browser import Browser, find_browser
from prism_marl import envs
from prism_marl.learners import MAPPO
from prism_marl.policies import write_policy
from prism_marl.policies.files import factors_file, policy_file
from prism_marl.reports.field import game_data
from prism_marl.reports.page import write_report
from synthetic import make_run

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium or Chrome on the path; CHROME may name one")
TASK = "orchard/4x4-3p-1f"
EPISODES = 5


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """The page of a team of Prism without ids."""
    run = make_run(tmp_path_factory.mktemp("orchard"), task=TASK, evaluations=3, seeds=1, spectra=False)
    learner, state = make("prism", MAPPO(recurrent=False, scale_inputs=True), envs.describe(TASK), ids=False)
    write_policy(policy_of(learner, state), policy_file(run, 0))
    write_policy(policy_of(learner, state, factored="every"), factors_file(run))
    path = run / "footprint.json"
    rows = json.loads(path.read_text())
    for row in rows:
        row["teams"] = {"3": [row["parameters"], 0], "128": [2 * row["parameters"], 0]}
    path.write_text(json.dumps(rows))
    assert PROGRAM
    with Browser(PROGRAM) as one:
        one.open(write_report([run], run.parent / "page.html"))
        yield one


def recorded(task: str):
    env = envs.make(task)

    def episode(key):
        start, obs = env.reset(key)
        actions = jax.random.randint(key, (env.spec.horizon, env.spec.agents), 0, 5)

        def step(state, action):
            after, made = env.step(key, state, action)
            return after, (state, after, action, made.reward, made.obs.local)

        return obs.local, jax.lax.scan(step, start, actions)[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(2), EPISODES)))


def as_script(state, at, kind) -> dict:
    """A state as the script has it."""
    column = {name: value[at].tolist() for name, value in state._asdict().items()}
    players = zip(column["row"], column["col"], column["picking"], strict=True)
    foods = zip(column["fruit_row"], column["fruit_col"], kind.tolist(), column["fruit"], strict=True)
    return {
        "players": [{"row": r, "col": c, "picking": on} for r, c, on in players],
        "foods": [{"row": r, "col": c, "kind": k, "fate": fate} for r, c, k, fate in foods],
        "clock": column["clock"],
    }


@pytest.mark.parametrize("task", ["orchard/4x4-3p-2f", "orchard/3x5-2p-2f-any"])
def test_the_rules_in_the_page_are_those_of_the_game(browser, task):
    env: Any = envs.make(task)
    _, (before, after, action, reward, local) = recorded(task)
    assert (reward > 0).any() and ((after.fruit == 2).any() or env.anyone)
    places = [(e, t) for e in range(EPISODES) for t in range(env.spec.horizon)]
    cases = [[as_script(before, at, env.kind), action[at].tolist()] for at in places]
    found = browser.evaluate(
        f"(() => {{ const game = {json.dumps(game_data(task))}; return {json.dumps(cases)}.map(([state, actions]) => {{"
        " const next = GAMES.orchard.step(game, state, actions);"
        " return [next.state, next.reward, GAMES.orchard.observe(game, next.state), next.over]; }); })()"
    )
    for at, (state, gain, seen, over) in zip(places, found, strict=True):
        assert state == as_script(after, at, env.kind)
        assert gain == pytest.approx(reward[at], abs=1e-6)
        assert seen == local[at].tolist()
        assert over == (all(food["fate"] for food in state["foods"]) or state["clock"] >= env.spec.horizon)


def test_orchards_of_the_page_obey_the_rules(browser):
    starts = browser.evaluate(
        f"(() => {{ const game = {json.dumps(game_data(TASK))}, random = dice(3);"
        " return Array.from({length: 100}, () => GAMES.orchard.reset(game, random)); })()"
    )
    for start in starts:
        assert len({(one["row"], one["col"]) for one in start["players"] + start["foods"]}) == 6
        assert [food["kind"] for food in start["foods"]] == [0, 1, 2]


def press(browser, text: str) -> None:
    buttons = "[...document.querySelectorAll('#field button')]"
    browser.evaluate(f"{buttons}.find((one) => one.textContent === {text!r}).click()")


def planned(browser) -> list[str]:
    """What each agent would play from one and the same cell, so that only its mask can matter."""
    return browser.evaluate(
        "(() => { const run = DATA.runs[0]; const team = window.team; const seen = ["
        "[1, 2, 1, -1, 0, 1, 0, 3, 1], [0, -2, 1, 2, 2, 1, -3, 1, 1]];"
        " return seen.map((one) => decide(team, [one, one, one], forgetful(team)).map((agent) => agent.values)); })()"
    )


def test_a_mask_makes_whoever_has_it_act_as_its_owner(browser):
    browser.evaluate(
        "(() => { window.team = readTeam(DATA.runs[0].field.policy); wardrobe(window.team, () => {}); })()"
    )
    own = np.array(planned(browser))
    assert (np.ptp(own, axis=1) > 1e-3).any()  # masks differ, and nothing else does
    browser.evaluate("[...wardrobe(window.team, () => {}).bar.querySelectorAll('button')][0].click()")
    np.testing.assert_allclose(np.array(planned(browser)), np.roll(own, -1, axis=1), atol=1e-6)
    browser.evaluate("[...wardrobe(window.team, () => {}).bar.querySelectorAll('button')][1].click()")
    np.testing.assert_allclose(np.array(planned(browser)), np.repeat(own[:, :1], 3, axis=1), atol=1e-6)


def test_the_visitor_passes_masks_on_and_measures_directions(browser):
    state = lambda: browser.evaluate(  # noqa: E731
        "[...document.querySelectorAll('#field [role=switch]')].map((one) => one.getAttribute('aria-checked'))"
    )
    chosen = lambda: browser.evaluate(  # noqa: E731
        "[...document.querySelectorAll('[data-what=wardrobe] select')].map((one) => one.value)"
    )
    trained = state()
    press(browser, "Pass masks on")
    assert chosen() == ["1", "2", "0"] and state() != trained
    press(browser, "One mask for all")
    assert chosen() == ["0", "0", "0"]
    press(browser, "As trained")
    assert chosen() == ["0", "1", "2"] and state() == trained
    assert "own directions" in browser.evaluate("document.querySelector('.switches .start').textContent")
    press(browser, "What is each direction worth?")
    browser.wait_for("document.querySelector('#field').textContent.includes('the largest losses')")
    assert 1 <= browser.evaluate("document.querySelectorAll('.switches .plain li').length") <= 8
    assert state() == trained
    assert [one for one in browser.trouble if one["method"] != "Network.requestWillBeSent"] == []


def test_the_footprint_tells_larger_teams(browser):
    said = browser.evaluate("document.querySelector('[data-what=teams]').textContent")
    assert "128 agents" in said and "× 2" in said
