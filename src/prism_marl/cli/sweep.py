"""``prism-marl sweep``: trains a grid of experiments."""

import argparse
from pathlib import Path

from prism_marl.cli.arguments import Arguments, known_fields, some_path
from prism_marl.cli.executing import add_executor_options, chosen_executor, conclude
from prism_marl.cli.screen import counted, show, table
from prism_marl.errors import UserError
from prism_marl.reports.finals import final_return
from prism_marl.runs.trackers import SINKS_HELP, check_sinks
from prism_marl.sweeps.files import cross, load_sweep
from prism_marl.sweeps.grid import Sweep, folder_of, grid, is_finished, run_sweep
from prism_marl.sweeps.live_view import SweepView, labels

GRID_FILES = (".py", ".json")


def run(argv: list[str]) -> int:
    """Train a grid of experiments; finished ones are skipped, interrupted ones continue."""
    parser = _parser()
    found, fields = parser.parse_with_fields(argv, known_fields)
    modules = parser.load_modules(found)
    sweep = build(found, [*parser.short_fields(found), *fields])
    for experiment in sweep.experiments:
        experiment.validate()
    if found.plan:
        _show_plan(sweep, found.out)
        return 0
    sinks = check_sinks(found.sinks)
    executor = chosen_executor(found)
    files = [*modules, *(Path(word) for word in found.what if word.endswith(".py"))]
    with SweepView(sweep.experiments, found.out, final=final_return) as view:
        outcome = run_sweep(sweep, found.out, executor, sinks=sinks, files=files, on_event=view.on_event)
    return conclude(outcome, sweep, found.out)


def _parser() -> Arguments:
    parser = Arguments(
        "sweep",
        "Train every combination of tasks, methods and values. Finished experiments are skipped, interrupted ones "
        "continue, failed ones are listed at the end and make the exit code 1.",
    )
    parser.add_argument("what", nargs="+", help="tasks; or one file: JSON with a grid, or Python that defines `sweep`")
    parser.add_argument("--sharing", nargs="+", metavar="METHOD", help="sharing methods (default: prism)")
    parser.add_argument(
        "--learner",
        nargs="+",
        metavar="NAME",
        help="learners (default: qmix for discrete actions, matd3 for continuous)",
    )
    parser.add_argument("--preset", help="settings to start from; see `prism-marl list` (default: default)")
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="FIELD=A,B",
        help="values of a setting to combine, e.g. learner.lr=0.001,0.0005; also as --learner.lr 0.001,0.0005",
    )
    parser.add_modules()
    parser.add_short_fields()
    parser.add_argument("--out", type=some_path, default=Path("runs"), help="folder of all runs (default: runs)")
    parser.add_argument("--plan", action="store_true", help="print the experiments, and stop")
    add_executor_options(parser)
    parser.add_argument("--sinks", help=SINKS_HELP)
    return parser


def build(found: argparse.Namespace, fields: list[tuple[str, str]]) -> Sweep:
    """The experiments that the command line describes."""
    options = {path: text.split(",") for path, text in [*map(_assignment, found.set), *fields]}
    files = [Path(word) for word in found.what if word.endswith(GRID_FILES)]
    if not files:
        methods = [word for part in found.sharing or ["prism"] for word in part.split(",")]
        learners = [word for part in found.learner or [] for word in part.split(",")] or [None]
        bases = cross(found.what, methods, found.preset or "default", learners)
        return Sweep(found.out.name, grid(bases, options))
    for name in ("sharing", "preset", "learner"):
        if getattr(found, name) is not None:
            raise UserError(f"--{name}: {files[0].name} defines the experiments; write it there")
    if len(found.what) > 1:
        raise UserError(f"{found.what[1]}: a sweep comes from one file, or from tasks; run several sweeps instead")
    loaded = load_sweep(files[0])
    return Sweep(loaded.name, grid(loaded.experiments, options))


def _assignment(word: str) -> tuple[str, str]:
    path, equals, text = word.partition("=")
    if not equals or not path or not text:
        raise UserError(f"--set: '{word}' is not of the form FIELD=VALUE or FIELD=VALUE,VALUE")
    return path, text


def _show_plan(sweep: Sweep, out: Path) -> None:
    rows = table(f"Sweep '{sweep.name}'", ("state",), ("seeds", "steps each"), ("experiment", "folder"))
    left = 0
    for experiment, label in labels(sweep.experiments).items():
        folder = folder_of(experiment, out)
        begun = "continues" if any((folder / "checkpoints").glob("*.safetensors")) else "starts"
        state = "finished" if is_finished(folder) else begun
        left += experiment.run.seeds * experiment.run.steps if state != "finished" else 0
        rows.add_row(state, f"{experiment.run.seeds}", f"{experiment.run.steps:,}", label, str(folder))
    show(rows, f"{counted(len(sweep.experiments), 'experiment')}; {left:,} environment steps at most are left")
