"""Self-contained HTML from run folders: no network, no server, opens from a file.

``write_report`` makes one file. ``write_page`` makes a folder: the same file as ``index.html``, and every figure as
PNG and PDF beside it. Data travels as JSON inside the page and reaches the screen as text, never as markup, so a
hostile run name stays a name. The content policy admits only the page's own script and style, by their hashes.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.errors import UserError
from prism_marl.reports.figure_files import MANIFEST, FigureFiles
from prism_marl.reports.figures import method_style
from prism_marl.reports.load import Run
from prism_marl.reports.outcome import final_words
from prism_marl.reports.page_data import Study, load_study, page_data
from prism_marl.reports.page_figures import planned_figures, write_figures
from prism_marl.storage.files import write_atomically

SCRIPTS = (
    *(
        "core.js",
        "chart.js",
        "learning.js",
        "compare.js",
        "settings.js",
        "spectrum.js",
        "diversity.js",
        "replay.js",
        "policy.js",
    ),
    *("games.js", "orchard.js", "masks.js", "field.js", "sections.js", "footprint.js", "training.js", "page.js"),
)
STYLES = ("style.css", "settings.css", "narrow.css")
GENERATOR = '<meta name="generator" content="prism-marl">'  # by which a page of ours is known again


def write_report(runs: Sequence[Path], out: Path, title: str | None = None) -> Path:
    """Write one file for all runs at or below the given folders; ``out`` appears whole or not at all."""
    out = Path(out)
    if out.exists() and not _is_ours(out):
        raise UserError(f"--out {out}: this is not a page of prism-marl, which would replace it; give another name")
    return _write_whole(out, render_page(load_study(runs), title))


def write_page(runs: Sequence[Path], folder: Path, title: str | None = None) -> Path:
    """Write ``folder/index.html`` and ``folder/figures``; figures of an earlier page that are no more go away."""
    folder = Path(folder)
    index = folder / "index.html"
    _refuse_strangers(folder, index)
    files = FigureFiles(index)
    study = load_study(runs)
    figures = planned_figures(study.runs, study.improvement)
    names = [f"{planned.stem}.{ending}" for planned in figures for ending in ("png", "pdf")]
    files.claim(names)
    write_figures(figures, files.folder)
    _write_whole(index, render_page(study, title, {key: f"figures/{stem}" for key, stem, _ in figures}))
    files.keep(names)
    return index


def _refuse_strangers(folder: Path, index: Path) -> None:
    """Nothing that is not ours is overwritten, and nothing in a folder that is not ours is taken away."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder}: this is a file; give a folder, or a name that ends with .html for one file")
    begun = (folder / "figures" / MANIFEST).is_file()  # by a report that was killed before it wrote its first page
    if not _is_ours(index) and (index.exists() or ((folder / "figures").exists() and not begun)):
        raise UserError(f"--out {folder}: this folder holds an index.html or figures of something else; give another")


def _is_ours(page: Path) -> bool:
    """Whether a file begins as our pages do."""
    if not page.is_file():
        return False
    with page.open("rb") as file:
        return GENERATOR.encode() in file.read(4000)


def _write_whole(out: Path, text: str) -> Path:
    write_atomically(out, text.encode("utf-8", errors="replace"))
    return out


def render_page(study: Study, title: str | None = None, figures: Mapping[str, str] | None = None) -> str:
    """The whole page as text; the same runs give the same text. ``figures`` are files to link to, without suffix."""
    folder = resources.files("prism_marl.reports") / "assets"
    script, style = (
        "\n".join((folder / name).read_text(encoding="utf-8") for name in names) for names in (SCRIPTS, STYLES)
    )
    data = page_data(study, figures or {})
    parts = {
        "title": html.escape(title or _default_title(study.runs)),
        "lede": html.escape(_lede(study.runs, data)),
        "warning": _warning(data["warning"]),
        "generator": GENERATOR,
        "style": style,
        "style_hash": _digest(style),
        "script": script,
        "script_hash": _digest(script),
        "data": _script_safe_json(data),
    }
    template = (folder / "template.html").read_text(encoding="utf-8")
    # One pass: a title that spells a placeholder is not expanded again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _default_title(runs: Sequence[Run]) -> str:
    tasks = list(dict.fromkeys(run.task for run in runs))
    labels = list(dict.fromkeys(method_style(run.method).label for run in runs))
    if not runs:
        return "No runs"
    what = labels[0] if len(labels) == 1 else f"{len(labels)} sharing methods"
    return f"{what} on {tasks[0] if len(tasks) == 1 else f'{len(tasks)} tasks'}"


def _lede(runs: Sequence[Run], data: Mapping[str, Any]) -> str:
    """The result in one or two sentences, readable without JavaScript: who wins if anybody does, and Prism."""
    if not runs:
        return "The folders hold no runs yet."
    shown = data["runs"][data["headline"]]
    if shown["scores"] is None:
        return "No evaluation has been written yet."
    if len(data["winners"]) > 1:
        return _many_tasks(data["winners"])
    named = next((one for one in data["winners"] if one["task"] == shown["task"]), None)
    best = shown if named is None or named["run"] is None else data["runs"][named["run"]]
    ends = "ends at a return of" if named is None or named["run"] is None else "ends highest with a return of"
    text = (
        f"{best['label']} {ends} {_with_interval(best)} on {best['task']} after {best['scores']['steps']:,.0f} steps."
    )
    if named and named["run"] is None:
        return f"{text}{_highest(data, shown)} No method is named the winner: {named['why']}."
    return text if shown is best else f"{text} {shown['label']} ends at {_with_interval(shown)}."


def _highest(data: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    """Who ends highest on the task of the run that is shown, where it is another: no winner, but no secret either."""
    table = next(one for one in data["improvement"] if one["task"] == shown["task"])
    first = data["runs"][table["runs"][0]]
    return "" if first is shown else f" The highest final return is {first['scores']['words'][0]}, of {first['label']}."


def _warning(text: str) -> str:
    """Readable without JavaScript, too."""
    return f'<p class="warning" role="note"><b>Few seeds.</b> {html.escape(text)}</p>' if text else ""


def _many_tasks(winners: Sequence[Mapping[str, Any]]) -> str:
    """How often each method ends clearly highest."""
    often = Counter(one["family"] for one in winners if one["family"] is not None).most_common()
    why = ", or ".join(dict.fromkeys(one["why"] for one in winners if one["family"] is None))
    tasks = f"{len(winners)} tasks on which several methods were trained"
    if not often:
        return f"No method is named the winner on any of the {tasks}: {why}."
    told = ", ".join(f"{name} on {count}" for name, count in often)
    left = len(winners) - sum(count for _, count in often)
    text = f"One method ends clearly highest on {len(winners) - left} of the {tasks}: {told}."
    return f"{text} No winner is named on the other {left}: {why}." if left else text


def _with_interval(run: Mapping[str, Any]) -> str:
    middle, low, high = run["scores"]["final"]
    return final_words(middle, low, high, run["seeds"])


def _script_safe_json(value: Any) -> str:
    """JSON that cannot end its script element or open a comment: ``<``, ``>`` and ``&`` are escapes, all is ASCII."""
    text = json.dumps(_plain(value), allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    """Arrays to lists, floats to five significant digits (whole numbers to all), NaN and infinity to null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
