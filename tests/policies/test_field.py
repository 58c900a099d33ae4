"""The page's own field: its rules are the game's, its team is the trained one, and the visitor can change both."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from teams import make, policy_of

from browser import Browser, find_browser
from prism_marl import envs
from prism_marl.learners import MAPPO, QMix
from prism_marl.policies import Policy, write_policy
from prism_marl.policies.files import factors_file, policy_file
from prism_marl.reports.field import ROOM, field_of, game_data, give_room, policy_data
from prism_marl.reports.page import write_report
from synthetic import make_run

PROGRAM = find_browser()
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium or Chrome on the path; CHROME may name one")
TASK = "lbf/5x5-3p-1f"
EPISODES = 6


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of Prism, whose policy is kept as matrices and as shared factors."""
    folder = make_run(tmp_path_factory.mktemp("field"), task=TASK, evaluations=3, seeds=1)
    learner, state = make("prism", QMix(scale_inputs=True, last_action=True), envs.describe(TASK))
    write_policy(policy_of(learner, state), policy_file(folder, 0))
    write_policy(policy_of(learner, state, factored="every"), factors_file(folder))
    return folder


@pytest.fixture(scope="module")
def browser(run):
    assert PROGRAM
    with Browser(PROGRAM) as one:
        one.open(write_report([run], run.parent / "page.html"))
        yield one


def rounded(policy: Policy) -> Policy:
    """The same with numbers in half precision."""
    return Policy(
        policy.contract, {name: value.astype(np.float16).astype(np.float32) for name, value in policy.tensors.items()}
    )


def recorded(task: str):
    """States, observations and rewards of some episodes of random actions, which load as often as they walk."""
    env = envs.make(task)

    def episode(key):
        start, obs = env.reset(key)
        noise = jax.random.randint(key, (40, env.spec.agents), 0, 9)

        def step(state, action):
            after, result = env.step(key, state, action)
            return after, (state, after, action, result.reward, result.obs.local)

        return obs.local, jax.lax.scan(step, start, jnp.where(noise > 5, 5, noise))[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(2), EPISODES)))


def as_script(state, at) -> dict:
    """A state as the script has it."""
    column = {name: value[at].tolist() for name, value in state._asdict().items()}
    players = [
        {"row": r, "col": c, "level": n, "loading": on}
        for r, c, n, on in zip(*(column[name] for name in ("row", "col", "level", "loading")), strict=True)
    ]
    foods = [
        {"row": r, "col": c, "level": n}
        for r, c, n in zip(*(column[name] for name in ("food_row", "food_col", "food_level")), strict=True)
    ]
    return {"players": players, "foods": foods, "spawned": column["spawned"], "clock": column["clock"]}


@needs_browser
@pytest.mark.parametrize("task", ["lbf/5x5-4p-2f-coop-places6", "lbf/5x7-3p-2f-s1-t20"])
def test_the_rules_in_the_page_are_those_of_the_game(browser, task):
    _, (before, after, action, reward, local) = recorded(task)
    assert (reward > 0).any()  # food was eaten
    places = [(e, t) for e in range(EPISODES) for t in range(40)]
    cases = [[as_script(before, at), action[at].tolist()] for at in places]
    found = browser.evaluate(
        f"(() => {{ const game = {json.dumps(game_data(task))}; return {json.dumps(cases)}.map(([state, actions]) => {{"
        " const next = GAMES.lbf.step(game, state, actions);"
        " return [next.state, next.reward, GAMES.lbf.observe(game, next.state), next.over]; }); })()"
    )
    for at, (state, gain, seen, over) in zip(places, found, strict=True):
        assert state == as_script(after, at)
        assert gain == pytest.approx(reward[at], abs=1e-6)
        assert seen == local[at].tolist()
        cleared = not any(food["level"] for food in state["foods"])
        assert over == (cleared or state["clock"] >= game_data(task)["horizon"])


@needs_browser
def test_fields_of_the_page_obey_the_rules(browser):
    game = game_data("lbf/6x6-4p-2f-coop")
    starts = browser.evaluate(
        f"(() => {{ const game = {json.dumps(game)}, random = dice(3);"
        " return Array.from({length: 300}, () => GAMES.lbf.reset(game, random)); })()"
    )
    levels = {player["level"] for start in starts for player in start["players"]}
    assert levels == {1, 2}
    for start in starts:
        cells = [(one["row"], one["col"]) for one in start["players"] + start["foods"]]
        assert len(set(cells)) == 6
        (a, b), most = cells[4:], sum(sorted(one["level"] for one in start["players"])[:3])
        assert abs(a[0] - b[0]) + abs(a[1] - b[1]) > 2 and a < b
        assert all(0 < part < 5 for cell in (a, b) for part in cell)
        assert all(food["level"] == most for food in start["foods"])
    assert len({tuple(start["players"][0].items()) for start in starts}) > 50


@needs_browser
@pytest.mark.parametrize("method", ["prism", "nops", "adaps"])
@pytest.mark.parametrize(
    "settings", [QMix(scale_inputs=True, last_action=True), MAPPO(recurrent=False, standardise_inputs=True)]
)
def test_the_team_in_the_page_acts_as_the_policy(browser, method, settings):
    learner, state = make(method, settings, envs.describe(TASK))
    policy = rounded(policy_of(learner, state, factored="every"))
    rng = np.random.default_rng(0)
    seen = rng.integers(-1, 5, (5, 3, policy.contract.observation)).astype(np.float32)
    found = browser.evaluate(
        f"(() => {{ const team = readTeam({json.dumps(policy_data(policy))}); let memory = forgetful(team);"
        f" return {json.dumps(seen.tolist())}.map((obs) => {{ memory = decide(team, obs, memory);"
        " return memory.map((one) => [one.values, one.action]); }); })()"
    )
    memory = policy.reset()
    for obs, agents in zip(seen, found, strict=True):
        values, _ = policy.outputs(obs, memory)
        action, memory = policy.act(obs, memory)
        np.testing.assert_allclose([one[0] for one in agents], values, rtol=1e-3, atol=1e-3)
        assert [one[1] for one in agents] == action.tolist()


def press(browser, text: str) -> None:
    buttons = "[...document.querySelectorAll('#field button')]"
    browser.evaluate(f"{buttons}.find((one) => one.textContent === {text!r}).click()")


def pieces(browser) -> tuple[list[tuple[int, int]], list[list[float]], list[float]]:
    """The cells of all pieces, their places on the screen, and the board's corner and the side of a cell."""
    boxes = browser.evaluate(
        "['#field svg', '#field .piece'].map((what) => [...document.querySelectorAll(what)].map((one) =>"
        " { const r = one.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }))"
    )
    left, top, side, _ = boxes[0][0]
    centres = [[x + w / 2, y + h / 2] for x, y, w, h in boxes[1]]
    cells = [(int((y - top) // (side / 5)), int((x - left) // (side / 5))) for x, y in centres]
    return cells, centres, [left, top, side / 5]


@needs_browser
def test_the_visitor_moves_food(browser):
    said = lambda: browser.evaluate("document.querySelector('#field ul').textContent")  # noqa: E731
    press(browser, "New field")
    assert "0 of 50" in said() and "agent 3" in said()
    press(browser, "One step")
    assert "1 of 50" in said()
    press(browser, "New field")
    browser.evaluate("document.querySelector('#field .board').scrollIntoView({block: 'center'})")
    cells, places, (left, top, side) = pieces(browser)
    row, col = next((r, c) for r in (1, 2, 3) for c in (1, 2, 3) if (r, c) not in cells)
    goal = [left + (col + 0.5) * side, top + (row + 0.5) * side]
    for kind, (x, y) in (("mousePressed", places[0]), ("mouseMoved", goal), ("mouseReleased", goal)):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
    assert pieces(browser)[0] == [(row, col), *cells[1:]]
    occupied = places[1]  # an agent stands there
    for kind, (x, y) in (("mousePressed", goal), ("mouseMoved", occupied), ("mouseReleased", occupied)):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
    assert pieces(browser)[0] == [(row, col), *cells[1:]]
    assert [one for one in browser.trouble if one["method"] != "Network.requestWillBeSent"] == []


@needs_browser
def test_the_visitor_switches_directions(browser):
    switches = "[...document.querySelectorAll('#field [role=switch]')]"
    state = lambda: browser.evaluate(f"{switches}.map((one) => one.getAttribute('aria-checked'))")  # noqa: E731
    trained = state()
    assert {"true", "false"} == set(trained)
    first = trained.index("true")
    browser.evaluate(f"{switches}[{first}].dispatchEvent(new MouseEvent('click'))")
    assert [k for k, (one, two) in enumerate(zip(trained, state(), strict=True)) if one != two] == [first]
    press(browser, "As trained")
    assert state() == trained
    press(browser, "All own directions off")
    assert set(state()) == {"false"}
    press(browser, "Compare on 100 fields")
    browser.wait_for("document.querySelector('#field [aria-live]').textContent.startsWith('Mean return')")
    press(browser, "As trained")
    assert [one for one in browser.trouble if one["method"] != "Network.requestWillBeSent"] == []


def test_the_page_carries_what_it_can_play(run, tmp_path):
    field = field_of(run, TASK)
    assert field and field["game"]["foods"] == 1 and "fc1.U" in field["policy"]["arrays"]
    assert field_of(run, "lbf/5x5-2p-1f") is None  # a policy of another task
    assert field_of(run, "skirmish/terran_5_vs_5") is None and field_of(run, "lbf/nonsense") is None
    assert field_of(tmp_path, TASK) is None
    size = sum(len(array["bytes"]) for array in field["policy"]["arrays"].values())
    many = [field] * (ROOM // size + 2)
    kept = give_room(many, len(many) - 1)
    assert kept[-1] is field and kept[0] is field and kept[-2] is None


def test_without_usable_factors_the_page_takes_the_matrices_or_nothing(run, tmp_path):
    import shutil

    folder = shutil.copytree(run, tmp_path / "run")
    factors_file(folder).write_bytes(b"nothing of ours")
    assert field_of(folder, TASK) is None
    factors_file(folder).unlink()
    field = field_of(folder, TASK)
    assert field and "fc1.weight" in field["policy"]["arrays"]
    learner, state = make("nops", QMix(), envs.describe(TASK))
    large = policy_of(learner, state)
    large.tensors["fc2.weight"] = large.tensors["fc2.weight"] * np.float32(1e6)  # beyond half precision
    write_policy(large, policy_file(folder, 0))
    assert field_of(folder, TASK) is None
    write_policy(policy_of(learner, state), policy_file(folder, 0))
    assert field_of(folder, TASK)
