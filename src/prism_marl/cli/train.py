"""``prism-marl train``."""

import argparse
from typing import Any

from prism_marl import api
from prism_marl.cli.arguments import Arguments, known_fields, some_path, whole
from prism_marl.errors import UserError
from prism_marl.experiment import config
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.learners import LEARNERS
from prism_marl.runs.trackers import SINKS_HELP, check_sinks
from prism_marl.runs.warm_start import FREEZE

WORDS = {"begin_from": "from"}  # of the command line, where Python has another
DEFAULTS: dict[str, Any] = {
    "sharing": "prism",
    "preset": "default",
    "learner": None,
    "options": False,
    "begin_from": None,
    "freeze": "nothing",
}


def run(argv: list[str]) -> int:
    """Train, or continue what was interrupted."""
    parser = _parser()
    found, fields = parser.parse_with_fields(argv, known_fields)
    parser.load_modules(found)

    how: dict[str, Any] = {
        "trackers": check_sinks(found.sinks),
        "deterministic": found.deterministic,
        "tf32": found.tf32,
        "strict": found.strict,
    }
    if found.extend is not None:
        _check_extension(found, fields)
        api.extend(found.out, steps=found.extend, **how)
        return 0
    if found.task is None:
        raise UserError("task: name one, for example lbf/10x10-3p-3f; see `prism-marl list`")
    experiment = preset(found.task, found.sharing, found.preset, found.learner)
    for path, text in [*parser.short_fields(found), *fields]:
        experiment = experiment.with_option(path, text)
    experiment.validate()
    if found.options:
        _show_options(experiment)
        return 0

    api.train(experiment, out=found.out, begin_from=found.begin_from, freeze=found.freeze, **how)
    return 0


def _show_options(experiment: Experiment) -> None:
    """Every setting with its value, its meaning and, if there are only some, its possible values."""
    for path, value, about in config.options(experiment):
        if "." in path:  # the task is a word of its own
            possible = config.choices(experiment, path)
            listed = f" [{', '.join(possible)}]" if possible else ""
            print(f"--{path:<28} {value!s:<12} {about}{listed}")  # noqa: T201


def _parser() -> Arguments:
    parser = Arguments(
        "train",
        "Train a team, or continue an interrupted run: the same command continues the run in its folder. The preset of "
        "the task has the default settings; --GROUP.FIELD VALUE changes one of them (--options lists them).",
    )
    parser.add_argument("task", nargs="?", help="for example lbf/10x10-3p-3f; see `prism-marl list`")
    parser.add_argument(
        "--sharing", default=DEFAULTS["sharing"], help="sharing method; see `prism-marl list` (default: prism)"
    )
    about = f"{', '.join(LEARNERS)} (default: qmix for discrete actions, matd3 for continuous)"
    parser.add_argument("--learner", help=about)
    about = "settings to start from; see `prism-marl list` (default: default)"
    parser.add_argument("--preset", default=DEFAULTS["preset"], help=about)
    parser.add_modules()
    parser.add_short_fields()
    parser.add_argument("--out", type=some_path, help="run folder (default: runs/TASK/METHOD-HASH)")
    parser.add_argument(
        "--extend",
        type=whole,
        metavar="STEPS",
        help="train the finished run in --out further, to this total number of steps; its other settings stay",
    )
    parser.add_argument(
        "--from",
        dest="begin_from",
        type=some_path,
        metavar="RUN",
        help="start from the agents' networks of another run; private parameters of additional agents are new",
    )
    parser.add_argument(
        "--freeze", choices=FREEZE, default="nothing", help="with --from: shared = freeze shared parameters"
    )
    parser.add_argument("--sinks", help=SINKS_HELP)
    parser.add_argument(
        "--deterministic", action="store_true", help="bit-identical results on a GPU, too; a little slower"
    )
    parser.add_argument("--tf32", action="store_true", help="faster matrix products on a GPU, with TF32 precision")
    parser.add_argument(
        "--strict", action="store_true", help="refuse to continue a run with other package versions, flags or devices"
    )
    parser.add_argument(
        "--options", action="store_true", help="list every setting with its value and meaning, and stop"
    )
    return parser


def _check_extension(found: argparse.Namespace, fields: list[tuple[str, str]]) -> None:
    """The run keeps its own settings, so only its folder and the new number of steps may be given."""
    if found.out is None:
        raise UserError("--extend: say which finished run with --out FOLDER")
    given = [f"--{path}" for path, _ in [*Arguments.short_fields(found), *fields]]
    given += [] if found.task is None else [found.task]
    given += [f"--{WORDS.get(name, name)}" for name in DEFAULTS if getattr(found, name) != DEFAULTS[name]]
    if given:
        raise UserError(f"--extend: the run in {found.out} keeps its own settings; leave out {given[0]}")
