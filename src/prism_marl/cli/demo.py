"""``prism-marl demo``: trains three teams on a game in which agents must differ, and writes one page about them."""

import shutil
from pathlib import Path

from rich.table import Table

from prism_marl.cli.arguments import Arguments, some_path, whole
from prism_marl.cli.screen import show, table
from prism_marl.envs import describe
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.monitor import ProgressBar
from prism_marl.reports.finals import final_of
from prism_marl.reports.load import Run, load_run
from prism_marl.reports.outcome import tell_outcome
from prism_marl.reports.page import write_report
from prism_marl.reports.start import parted
from prism_marl.reports.stats import interquartile_mean
from prism_marl.runs.folder import load_experiment, refuse_strange_folder
from prism_marl.runs.machine import configure_jax
from prism_marl.runs.runner import run as run_experiment

TASK, LEARNER = "orchard/6x6-3p-2f", "mappo"
PAGE = "report.html"
TITLE = "Agents that see alike and must differ"
CHANGES = {"run.seeds": "5", "run.steps": "200000", "run.eval_every": "20000", "run.save_every": "5"}
MASKS_ALONE = {  # Prism in which nothing but masks can make agents differ, and nothing but training can part them
    "sharing.ids": "false",
    "sharing.threshold_init": "shared",  # all agents begin with the same masks
    "sharing.init": "svd_of_orthogonal",  # and all directions with the same singular value
    "sharing.threshold_scale": "0",
    "sharing.threshold_shift": "1",
    "sharing.threshold_rate": "10",  # so that they part within a minute and not within an hour
    "sharing.diversity": "0",
    "sharing.common": "0.2",
}
METHODS: dict[str, dict[str, str]] = {  # with what is changed for each
    "prism": MASKS_ALONE,
    "fups": {},  # one network for all, which cannot solve it
    "nops": {},  # a network for each agent
}
WRITTEN = (
    *("spectra", "replays", "checkpoints", "eval.jsonl", "train.jsonl", "timing.jsonl", "diversity.jsonl"),
    *("policies", "deployment.json", "machine.json", "footprint.json", "report.html", "done"),
)


def run(argv: list[str]) -> int:
    """Train Prism and two other ways of sharing on the same game and write their page."""
    parser = Arguments(
        "demo", "Train Prism, one network for all, and a network for each agent; then write their report."
    )
    parser.add_argument("--out", type=some_path, default=Path("runs/demo"), help="folder (default: runs/demo)")
    parser.add_argument("--steps", type=whole, help="environment steps for each seed")
    found = parser.parse_strictly(argv)
    refuse_strange_folder(found.out, (*METHODS, PAGE))
    cache = configure_jax()
    folders = []
    for method in METHODS:
        folder, experiment = found.out / method, demo_experiment(method, found.steps)
        if (folder / "done").exists() and load_experiment(folder) == experiment:
            _clear(folder)  # run a finished demo again from the start
        title = f"{experiment.sharing.label} · {experiment.task} · {experiment.run.seeds} seeds"
        with ProgressBar(experiment.run.steps, title) as bar:
            run_experiment(experiment, folder, bar, cache)
            tell_outcome(folder, bar, experiment.run.steps)
        folders.append(folder)
    page = write_report(folders, found.out / PAGE, TITLE)
    show("", *summary([load_run(folder) for folder in folders]), f"\nopen {page} in a browser")
    return 0


def _clear(folder: Path) -> None:
    """Delete only the files of a demo, because the folder may hold other runs. ``done`` is deleted last, so that the
    next demo deletes again if this one is killed here."""
    for name in WRITTEN:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def demo_experiment(method: str, steps: int | None = None) -> Experiment:
    """The game's preset with the changes above."""
    experiment = preset(TASK, method, learner=LEARNER)
    for path, text in (CHANGES | METHODS[method]).items():
        experiment = experiment.with_option(path, text)
    return experiment if steps is None else experiment.with_option("run.steps", str(steps))


def summary(runs: list[Run]) -> list[Table | str]:
    """What the visitor has just seen, in numbers that are read from the run folders."""
    made = table(f"{runs[0].task}, {LEARNER.upper()}", ("method",), ("return", "parameters", "private per agent"))
    lines, agents = list[Table | str]([made]), describe(TASK).agents
    for run in runs:
        final, size = final_of(run.evaluations), next(row for row in run.footprint if row.method == run.method)
        score = "" if final is None else f"{interquartile_mean(final.values):.2f}"
        made.add_row(size.label, score, f"{size.parameters:,.0f}", f"{size.private / agents:,.0f}")
        if run.spectra is not None:
            first, last, total = parted(run.spectra)
            lines.append(
                f"\n{size.label}: agents read no id, and all started with the same thresholds. Masks of two agents "
                f"differed in {first} of {total} own directions before training (all seeds) and differ in {last} now."
            )
    return lines
