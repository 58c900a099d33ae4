"""``prism-marl train``."""

import argparse
from typing import Any

from prism_marl import api
from prism_marl.cli.arguments import Arguments, known_fields, some_path, whole
from prism_marl.errors import UserError
from prism_marl.experiment import config
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
        for path, value, about in config.options(experiment):
            if "." in path:  # the task is a word of its own
                print(f"--{path:<28} {value!s:<12} {about}")  # noqa: T201
        return 0

    api.train(experiment, out=found.out, begin_from=found.begin_from, freeze=found.freeze, **how)
    return 0


def _parser() -> Arguments:
    parser = Arguments(
        "train",
        "Train a team. Defaults are the task's preset; every field can be set as --group.field VALUE. "
        "An existing folder is continued.",
    )
    parser.add_argument("task", nargs="?", help="for example lbf/10x10-3p-3f; see `prism-marl list`")
    parser.add_argument("--sharing", default=DEFAULTS["sharing"], help="sharing method (default: prism)")
    parser.add_argument("--learner", help=f"{', '.join(LEARNERS)} (default: the one of the task's benchmark)")
    parser.add_argument("--preset", default=DEFAULTS["preset"], help="one of `prism-marl list` (default: default)")
    parser.add_modules()
    parser.add_short_fields()
    parser.add_argument("--out", type=some_path, help="run folder (default: runs/TASK/METHOD-HASH)")
    parser.add_argument(
        "--extend",
        type=whole,
        metavar="STEPS",
        help="continue the finished run in --out until it has so many steps in total; nothing else changes",
    )
    parser.add_argument(
        "--from",
        dest="begin_from",
        type=some_path,
        metavar="RUN",
        help="begin with the agents' networks of another run; new agents get fresh numbers of their own",
    )
    parser.add_argument(
        "--freeze", choices=FREEZE, default="nothing", help="with --from: shared = only numbers of single agents learn"
    )
    parser.add_argument("--sinks", help=SINKS_HELP)
    parser.add_argument(
        "--deterministic", action="store_true", help="the same bits every time on a GPU too, at some cost in speed"
    )
    parser.add_argument("--tf32", action="store_true", help="products on a GPU with inputs rounded to TF32: faster")
    parser.add_argument(
        "--strict", action="store_true", help="do not go on with a run under other versions, flags or devices"
    )
    parser.add_argument("--options", action="store_true", help="list every field with its value and meaning, and stop")
    return parser


def _check_extension(found: argparse.Namespace, fields: list[tuple[str, str]]) -> None:
    """A run goes on with its own settings: it is only said which run, and how far."""
    if found.out is None:
        raise UserError("--extend: say which finished run with --out FOLDER")
    given = [f"--{path}" for path, _ in [*Arguments.short_fields(found), *fields]]
    given += [] if found.task is None else [found.task]
    given += [f"--{WORDS.get(name, name)}" for name in DEFAULTS if getattr(found, name) != DEFAULTS[name]]
    if given:
        raise UserError(f"--extend: the run in {found.out} goes on with its own settings; leave out {given[0]}")
