"""The page on phones, without good eyes and without a mouse: section by section nothing is cut off, text stands out
from its ground, and every control has a name. And what readers compare: settings, single seeds, too few seeds."""

import json

import jax
import pytest

from browser import Browser, find_browser
from prism_marl import envs
from prism_marl.envs import Meaning
from prism_marl.learners import QMix
from prism_marl.policies import write_policy
from prism_marl.policies.extract import Origin, extract
from prism_marl.policies.files import factors_file, policy_file
from prism_marl.reports.page import write_report
from prism_marl.sharing import METHODS
from synthetic import make_run, write_json

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium or Chrome on the path; CHROME may name one")

TASK = "lbf/5x5-3p-1f"
LONG = "</script><img src=x onerror=alert(1)>" * 3  # as hostile as it is long
SECTIONS = (
    *("headline", "contents", "learning", "scores", "settings", "chooser", "diversity", "spectrum", "replay", "field"),
    *("footprint", "training", "record", "missing"),
)
# What of a part of the page leaves the window, or is cut off by itself or by something around it. Headings of tables
# that are only there for screen readers do not count.
CUT = """((root) => {
  const wide = document.documentElement.clientWidth, found = [];
  const tell = (why, node) => found.push(why + ": " + node.tagName + " " + (node.textContent || "").slice(0, 40));
  for (const node of [root, ...root.querySelectorAll("*")]) {
    if (!node.getClientRects().length || node.closest("thead")?.clientWidth <= 1) continue;
    const box = node.getBoundingClientRect(), picture = node.closest("svg");
    if (box.right > wide + 1 || box.left < -1) tell("outside", node);
    const cuts = getComputedStyle(node).overflowX !== "visible";
    if (cuts && !picture && node.tagName !== "SELECT" && node.scrollWidth > node.clientWidth + 1) tell("cut", node);
    if (picture && node.tagName === "text") {
      const frame = picture.getBoundingClientRect();
      if (box.right > frame.right + 1.5 || box.left < frame.left - 1.5) tell("cut by its picture", node);
    }
  }
  return found;
})"""

# Texts that stand out too little from what is behind them (WCAG AA: 4.5, large letters 3). Pictures of games, whose
# letters stand on coloured pieces, do not count, nor do names of hidden methods, which are pale on purpose.
PALE = """(() => {
  const parts = (colour) => {
    const numbers = colour.match(/[\\d.]+/g).map(Number), scale = colour.startsWith("color(") ? 255 : 1;
    return [...numbers.slice(0, 3).map((one) => one * scale), numbers[3] ?? 1];
  };
  const over = (top, ground) => ground.map((part, i) => top[i] * top[3] + part * (1 - top[3]));
  const light = (rgb) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const part = rgb[i] / 255;
    return sum + weight * (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  }, 0);
  const chain = (node) => (node ? [node, ...chain(node.parentElement)] : []);
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.textContent.trim() || !node.checkVisibility()) continue;
    if (node.closest(".board, script, noscript, option")) continue;
    const style = getComputedStyle(node), above = chain(node), picture = node instanceof SVGElement;
    const grounds = above.map((one) => parts(getComputedStyle(one).backgroundColor)).reverse();
    const ground = grounds.reduce((below, one) => over(one, below), [255, 255, 255]);
    const ink = parts(picture ? style.fill : style.color);
    ink[3] *= above.reduce((product, one) => product * Number(getComputedStyle(one).opacity), 1);
    const [low, high] = [light(over(ink, ground)), light(ground)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if ((high + 0.05) / (low + 0.05) < (large ? 3 : 4.5)) found.push(text.textContent.slice(0, 30));
  }
  return found;
})()"""
# Controls and pictures without a name for those who hear the page.
NAMELESS = """(() => {
  const meant = "button, select, input, summary, a, [tabindex], [role=img], [role=switch]";
  const named = (node) => node.getAttribute("aria-label") || node.textContent.trim()
    || [...(node.labels || [])].some((label) => label.textContent.trim());
  const mute = [...document.querySelectorAll(meant)].filter((node) => node.checkVisibility() && !named(node));
  return mute.map((node) => node.outerHTML.slice(0, 80));
})()"""


@pytest.fixture(scope="module")
def browser():
    assert PROGRAM
    with Browser(PROGRAM) as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Eight runs on two tasks: one with everything a run can have, one with a long name, two with few seeds."""
    folder = tmp_path_factory.mktemp("phones")
    first = make_run(folder / "runs", task=TASK, evaluations=6)
    learner = QMix(scale_inputs=True).learner(METHODS["prism"](), envs.describe(TASK), width=8)
    state, origin = jax.jit(learner.init)(jax.random.key(0)), Origin("prism", "qmix")
    write_policy(extract(learner, state, origin, Meaning()), policy_file(first, 0))
    write_policy(extract(learner, state, origin, Meaning(), factored="every"), factors_file(first))
    costs = {"agents": 3, "bytes": 140_312, "factored_bytes": 90_000, "multiply_adds": 34_496, "microseconds": 41.5}
    write_json(first / "deployment.json", costs)
    for seed, common in enumerate((0.25, 0.75), 1):
        path = make_run(folder / "runs", task=TASK, evaluations=6, seed=seed, replays=0, spectra=False)
        config = json.loads((path / "config.json").read_text())
        sharing = {**config["sharing"], "common": common, "window": 100 * seed, "ties": "still"}  # two more fields
        write_json(path / "config.json", {**config, "sharing": sharing})
    for seed, method in enumerate(("fups", "nops", "kaleidoscope"), 3):
        make_run(
            folder / "runs", method=method, task=TASK, evaluations=6, seed=seed, seeds=5 if seed > 3 else 2, replays=0
        )
    make_run(folder / "runs", method=LONG, task=TASK, evaluations=6, seed=7, replays=0, name="folder-" * 12)
    make_run(folder / "runs", task="lbf/other", evaluations=6, seed=8, seeds=3)
    return write_report([folder / "runs"], folder / "page.html")


@pytest.mark.parametrize("width", [360, 390, 768])
def test_no_section_is_cut_and_the_page_does_not_scroll_sideways(browser, page, width):
    browser.open(page, width)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    shown = browser.evaluate("[...document.querySelectorAll('main > *:not([hidden])')].map((one) => one.id)")
    assert tuple(shown) == SECTIONS, "the page of this test has them all"
    parts = [f"#{name}" for name in SECTIONS] + ["header", "footer"]
    cut = {part: browser.evaluate(f"{CUT}(document.querySelector('{part}'))") for part in parts}
    assert {part: found for part, found in cut.items() if found} == {}
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_the_measure_sees_what_is_cut(browser, page):
    browser.open(page, 360)
    for style in ("width: 500px", "overflow: hidden; white-space: nowrap; width: 50px"):
        browser.evaluate(f"document.querySelector('#record .caption').style = '{style}'")
        assert browser.evaluate(f"{CUT}(document.getElementById('record'))")
    browser.evaluate("document.querySelector('#learning .chart svg text').setAttribute('x', -300)")
    assert browser.evaluate(f"{CUT}(document.getElementById('learning'))")


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground_and_controls_have_names(browser, page, dark):
    browser.open(page, dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert browser.evaluate(PALE) == []
    assert browser.evaluate(NAMELESS) == []
    browser.evaluate(
        "document.querySelector('.caption').style = 'color: color-mix(in srgb, currentColor 40%, transparent)'"
    )
    assert len(browser.evaluate(PALE)) == 1, "the measure sees pale text"


DIFFERENT = "#settings .differences"


def texts(browser, selector):
    """What stands in every element that is meant."""
    return browser.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")


def rows_of_settings(browser):
    """The table of fields that differ: what each cell of a row shows."""
    fields = texts(browser, f"{DIFFERENT} tbody th")
    cells = "[...row.querySelectorAll('td')].map((cell) => cell.innerText.replace(/\\s+/g, ' '))"
    rows = browser.evaluate(f"[...document.querySelectorAll('{DIFFERENT} tbody tr')].map((row) => {cells})")
    return dict(zip(fields, rows, strict=True))


def test_settings_of_two_runs_stand_side_by_side_and_differences_are_marked(browser, page):
    browser.open(page)
    names = texts(browser, "#settings select[aria-label=Compare] option")
    assert names[0].startswith("Prism (") and len(names) == 8
    one, other = (next(n for n, name in enumerate(names) if part in name) for part in ("0.25", "0.75"))
    browser.choose("#settings select[aria-label=Compare]", str(one))
    assert len(texts(browser, "#settings select[aria-label=with] option")) == 8, "all others, or one of seven"
    browser.choose("#settings select[aria-label=with]", str(other))
    assert texts(browser, f"{DIFFERENT} tbody th") == ["sharing.common", "sharing.window"]
    assert texts(browser, "#settings mark") == ["0.75", "200"]
    assert texts(browser, "#settings .start")[0] == "Of 18 fields, 2 have different values."
    equal = "document.querySelector('#settings .folded .settings').checkVisibility()"
    assert not browser.evaluate(equal)
    browser.click("#settings .folded summary")
    assert browser.evaluate(equal)
    assert "sharing.method" in browser.evaluate("document.querySelector('#settings .folded').innerText")
    browser.choose("#settings select[aria-label^=What]", "machine")
    assert texts(browser, "#settings .start")[0].startswith("All 5 fields have equal")


def test_settings_of_many_runs_are_gathered_by_their_values(browser, page):
    browser.open(page)
    found = rows_of_settings(browser)
    assert list(found) == ["task", "sharing.method", "sharing.common", "run.seeds", "sharing.window", "sharing.ties"]
    assert texts(browser, "#settings .start")[0] == (
        "Of 18 fields, 5 have different values, and 1 more is there in some of the runs only."
    )
    assert texts(browser, "#settings .folded tbody th") == ["sharing.ties"], "alike wherever it is"
    assert found["sharing.window"][0] == "–" and "100 Prism" in found["sharing.window"][1]
    own, others = found["sharing.common"]
    assert own == "0.6" and others.startswith("0.6 5 runs") and "0.25 Prism" in others and "0.75 Prism" in others
    assert {"0.25", "0.75", "lbf/other", "fups", "2", "3"} <= set(texts(browser, "#settings mark"))
    assert "0.6" not in texts(browser, "#settings mark")
    browser.click("#settings .differences summary")
    assert "FuPS" in browser.evaluate("document.querySelector('#settings .differences details[open]').innerText")


def test_single_seeds_are_drawn_for_every_metric_and_every_training_signal(browser, page):
    browser.open(page)
    lines = "document.querySelectorAll('#learning path.seed').length"
    assert browser.evaluate(lines) == 0
    browser.click("#learning .bar input[type=checkbox]")
    metrics = texts(browser, "#learning .segments button")
    assert metrics == ["return", "length", "collected"]
    for number in range(1, len(metrics) + 1):
        browser.click(f"#learning .segments button:nth-child({number})")
        assert browser.evaluate(lines) == 6 * 5 + 2 + 3, metrics[number - 1]
    assert texts(browser, "#learning .bar label") == texts(browser, "#training .bar label") == ["single seeds"]
    charts = browser.evaluate("document.querySelectorAll('#training .chart').length")
    browser.click("#training .bar input[type=checkbox]")
    assert browser.evaluate("document.querySelectorAll('#training path.seed').length") == 5 * charts
    browser.click("#training .bar input[type=checkbox]")
    assert browser.evaluate("document.querySelectorAll('#training path.seed').length") == 0


def test_single_seeds_are_those_of_the_rows(browser, page):
    """What two bytes a number keep of them, against the rows of one run."""
    path = page.parent / "runs" / "nops-lbf-5x5-3p-1f-4" / "eval.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    ends = [row["length"] for row in rows if row["evaluation"] == 0]
    browser.open(page)
    curve = "DATA.runs.find((run) => run.method === 'nops').curves.length"
    found = browser.evaluate(f"singleSeeds({curve}).map((seed) => seed[0])")
    assert found == pytest.approx(ends, abs=2e-3)


def test_few_seeds_are_warned_of_where_a_result_is_read(browser, page, tmp_path):
    browser.open(page)
    warning = browser.evaluate("document.querySelector('header .warning').textContent")
    assert "2 of 8 runs (FuPS on lbf/5x5-3p-1f, Prism on lbf/other) have fewer than five seeds" in warning
    assert texts(browser, "#scores .few") == ["2 (few)", "3 (few)"]
    make_run(tmp_path / "runs", evaluations=2, replays=0)
    browser.open(write_report([tmp_path / "runs"], tmp_path / "page.html"))
    assert browser.evaluate("document.querySelector('.warning, .few')") is None
