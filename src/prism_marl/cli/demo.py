"""``prism-marl demo``: trains a team and writes its page, in a minute or two on a laptop."""

import shutil
from pathlib import Path

from prism_marl.cli.arguments import Arguments, some_path, whole
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.monitor import ProgressBar
from prism_marl.reports.outcome import tell_outcome
from prism_marl.reports.page import write_report
from prism_marl.runs.folder import load_experiment
from prism_marl.runs.machine import configure_jax
from prism_marl.runs.runner import run as run_experiment

TASK = "lbf/5x5-2p-1f"
CHANGES = {  # to the paper's settings, so that a small field is learned in seconds
    "run.steps": "80000",
    "run.seeds": "2",
    "run.envs": "8",
    "run.eval_every": "4000",
    "run.eval_episodes": "64",
    "learner.lr": "1e-3",
    "learner.buffer": "2000",
    "learner.target_interval": "50",
    "learner.epsilon_anneal": "20000",
    "learner.scale_inputs": "true",  # so that both seeds learn equally fast
}
WRITTEN = (
    *("spectra", "replays", "checkpoints", "eval.jsonl", "train.jsonl", "timing.jsonl"),
    *("policies", "deployment.json", "machine.json", "footprint.json", "report.html", "done"),
)


def run(argv: list[str]) -> int:
    """Train Prism on a small foraging task and write its page."""
    parser = Arguments("demo", "Train Prism on a small foraging task and write its page.")
    parser.add_argument("--out", type=some_path, default=Path("runs/demo"), help="run folder (default: runs/demo)")
    parser.add_argument("--steps", type=whole, help="environment steps for each seed")
    found = parser.parse_strictly(argv)
    cache = configure_jax()
    experiment = demo_experiment(found.steps)
    if (found.out / "done").exists() and load_experiment(found.out) == experiment:
        _clear(found.out)  # run a finished demo again from the start
    title = f"{experiment.sharing.label} · {experiment.task} · {experiment.run.seeds} seeds"
    with ProgressBar(experiment.run.steps, title) as bar:
        run_experiment(experiment, found.out, bar, cache)
        tell_outcome(found.out, bar, experiment.run.steps)
    page = write_report([found.out], found.out / "report.html")
    print(f"\nopen {page} in a browser")  # noqa: T201
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


def demo_experiment(steps: int | None = None) -> Experiment:
    """The paper's Prism with the changes above."""
    experiment = preset(TASK, "prism", "paper")
    for path, text in CHANGES.items():
        experiment = experiment.with_option(path, text)
    return experiment if steps is None else experiment.with_option("run.steps", str(steps))
