"""The page in a real browser: it draws, answers to mouse and keyboard, and nothing goes wrong unseen."""

import json

import pytest

from browser import Browser, find_browser
from prism_marl.reports.page import render_page, write_report
from prism_marl.reports.page_data import Study, load_study
from synthetic import make_run, write_json

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium or Chrome on the path; CHROME may name one")

HOSTILE = "</script><!--<img src=x onerror=alert(1)>\u2028'\"&"
LEGEND = "#learning .legend button"
LINES = "document.querySelectorAll('#learning .chart svg path[stroke-width=\"2.1\"]').length"


@pytest.fixture(scope="module")
def browser():
    assert PROGRAM
    with Browser(PROGRAM) as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Three methods, one of them with a hostile name, on one task."""
    folder = tmp_path_factory.mktemp("browser")
    first = make_run(folder / "runs", evaluations=8, seeds=3)
    costs = {"agents": 3, "bytes": 140_312, "factored_bytes": 90_000, "multiply_adds": 34_496, "microseconds": 41.5}
    write_json(first / "deployment.json", costs)
    make_run(folder / "runs", method="fups", evaluations=8, seeds=3, seed=1)
    evil = make_run(folder / "runs", method=HOSTILE, evaluations=8, seeds=3, seed=2, replays=0)
    write_json(evil / "machine.json", {HOSTILE: HOSTILE})
    return write_report([folder / "runs"], folder / "page.html", HOSTILE)


def faults(browser):
    """What the console, the log and the network saw; loading the page itself is the one request."""
    requests = [one for one in browser.trouble if one["method"] == "Network.requestWillBeSent"]
    outside = [one for one in requests if not one["params"]["request"]["url"].startswith(("file:", "data:"))]
    return outside + [one for one in browser.trouble if one["method"] != "Network.requestWillBeSent"]


def test_the_page_draws_everything_without_a_word_in_the_console(browser, page):
    browser.open(page)
    assert browser.evaluate(LINES) == 3
    assert browser.evaluate("document.querySelectorAll('.scores tbody tr').length") == 3
    assert browser.evaluate("document.querySelectorAll('.chances tbody td').length") == 9
    assert browser.evaluate("document.querySelectorAll('#spectrum canvas').length") == 8
    assert browser.evaluate("document.querySelector('h1').textContent") == HOSTILE
    assert browser.evaluate("document.querySelectorAll('img, iframe, object').length") == 0
    assert browser.evaluate(r"document.body.innerText.match(/\b(null|undefined|NaN|object Object)\b/)") is None
    assert faults(browser) == []


def test_the_table_of_agents_follows_the_time_and_answers_to_keys(browser, page):
    browser.open(page)
    canvas = "document.querySelector('#diversity canvas')"
    last = browser.evaluate(f"{canvas}.getAttribute('aria-label')")
    assert "every two of 3 agents" in last
    assert browser.evaluate("document.querySelectorAll('#diversity .chart svg').length") == 3
    browser.evaluate(f"{canvas}.focus()")
    browser.press("ArrowDown", 40)
    assert "agent 3 and agent 1 act" in browser.evaluate("document.getElementById('tip').textContent")
    browser.evaluate("document.querySelector('#diversity input[type=range]').focus()")
    browser.press("Home", 36)
    assert browser.evaluate("document.querySelector('#diversity .readout').textContent") == "step 0"
    assert browser.evaluate(f"{canvas}.getAttribute('aria-label')") != last
    assert faults(browser) == []


def test_the_console_is_really_watched(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text("<script>console.error('oh'); missing()</script><img src='http://192.0.2.1/x'>")
    browser.open(bad)
    assert {one["method"] for one in faults(browser)} >= {
        "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.requestWillBeSent"
    }  # fmt: skip


def test_a_script_that_is_not_ours_does_not_run(browser, page, tmp_path):
    smuggled = tmp_path / "smuggled.html"
    smuggled.write_text(
        page.read_text(encoding="utf-8").replace("</body>", "<script>window.evil = 1</script></body>"), encoding="utf-8"
    )
    browser.open(smuggled)
    assert browser.evaluate("window.evil") is None
    assert faults(browser)  # the policy says so in the console


def test_a_method_is_hidden_and_shown_by_mouse_and_by_keyboard(browser, page):
    browser.open(page)
    browser.click(LEGEND)
    assert browser.evaluate(LINES) == 2
    assert browser.evaluate(f"document.querySelector('{LEGEND}').getAttribute('aria-pressed')") == "false"
    browser.click(LEGEND)
    assert browser.evaluate(LINES) == 3
    browser.evaluate("document.querySelector('#learning input[type=checkbox]').focus()")
    browser.press("Tab", 9)
    assert browser.evaluate(f"document.activeElement === document.querySelector('{LEGEND}')")
    browser.press("Enter", 13, "\r")
    assert browser.evaluate(LINES) == 2
    assert browser.evaluate(f"document.activeElement === document.querySelector('{LEGEND}')")
    assert faults(browser) == []


def test_values_are_read_by_pointing_and_by_arrow_keys(browser, page):
    browser.open(page)
    browser.move(*browser.centre("#learning .chart svg"))
    assert browser.evaluate("document.querySelectorAll('#tip .row').length") == 3
    assert "step" in browser.evaluate("document.getElementById('tip').textContent")
    browser.evaluate("document.querySelector('#learning .chart svg').focus()")
    browser.press("End", 35)
    last = browser.evaluate("document.getElementById('tip').textContent")
    browser.press("ArrowLeft", 37)
    assert browser.evaluate("document.getElementById('tip').textContent") != last


def test_the_slider_moves_the_heat_maps_and_the_squares(browser, page):
    browser.open(page)
    seen = []
    canvases = "[...document.querySelectorAll('#spectrum canvas')].map((one) => one.toDataURL())"
    for _ in range(2):
        seen.append(
            (browser.evaluate("document.querySelector('#spectrum .readout').textContent"), browser.evaluate(canvases))
        )
        browser.evaluate("document.querySelector('#spectrum input[type=range]').focus()")
        browser.press("Home", 36)
    (late, late_maps), (early, early_maps) = seen
    assert early == "step 0"
    assert late != early
    assert all(a != b for a, b in zip(late_maps, early_maps, strict=True))
    assert "0%" in browser.evaluate("document.querySelector('#spectrum .pair h3').textContent")
    browser.choose("#spectrum select[aria-label^=What]", "values")
    assert "L1 distance 0" in browser.evaluate("document.querySelector('#spectrum .pair h3').textContent")
    assert faults(browser) == []


def test_replays_step_and_another_run_is_chosen(browser, page):
    browser.open(page)
    frame = "document.querySelector('#replay .plain li b').textContent"
    assert browser.evaluate(frame).startswith("1 of")
    browser.click("#replay button[aria-label='One step on']")
    assert browser.evaluate(frame).startswith("2 of")
    shapes = "document.querySelectorAll('#replay .board circle, #replay .board rect').length"
    assert browser.evaluate(shapes) > 3
    browser.choose("#run-picker", "1")  # FuPS has no spectrum
    assert browser.evaluate("document.getElementById('spectrum').hidden")
    assert not browser.evaluate("document.getElementById('replay').hidden")
    browser.click("#record summary")
    assert "sharing.method" in browser.evaluate("document.getElementById('record').innerText")
    assert faults(browser) == []


def test_light_and_dark_follow_the_system_and_the_button(browser, page):
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(page)
    light = browser.evaluate(paper)
    browser.open(page, dark=True)
    dark = browser.evaluate(paper)
    assert light != dark
    browser.click("#theme")
    assert browser.evaluate(paper) == light
    browser.click("#theme")
    assert browser.evaluate(paper) == dark
    browser.evaluate("localStorage.clear()")
    assert faults(browser) == []


def test_a_narrow_window_has_no_sideways_scroll(browser, page):
    for width in (400, 1240):
        browser.open(page, width)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_pages_of_nothing_and_of_ruins_stand(browser, tmp_path):
    path = make_run(tmp_path / "runs", evaluations=4, seeds=2)
    rows = [json.loads(line) for line in (path / "eval.jsonl").read_text().splitlines()]
    (path / "eval.jsonl").write_text(
        "\n".join(json.dumps({"seed": row["seed"], "step": row["step"]}) for row in rows) + '\n{"se'
    )
    (path / "replays" / "seed0.json").write_text("{")
    for study in (Study(()), load_study([tmp_path / "runs"])):
        (tmp_path / "page.html").write_text(render_page(study), encoding="utf-8")
        browser.open(tmp_path / "page.html")
        assert browser.evaluate("document.querySelectorAll('#missing li').length") >= 1
        assert faults(browser) == []


def test_the_page_shows_what_an_agents_policy_costs(browser, page):
    browser.open(page)
    words = browser.evaluate("document.querySelector('[data-what=deployment]').innerText")
    for part in ("140,312, 90,000 with shared factors", "34,496", "41.5 (measured"):
        assert part in words
