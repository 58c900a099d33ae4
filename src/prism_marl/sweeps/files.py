"""A sweep from a file: a grid written as JSON, or Python that builds the experiments.

A Python file has ``sweep`` at its top level: a ``Sweep``, a list of experiments, or a function that returns either. It
is executed here and in every worker, so methods and tasks that it registers are known there.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prism_marl.errors import UserError, nearest
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.plugins import load_file
from prism_marl.experiment.presets import preset
from prism_marl.storage.files import StrangeFileError, parse_object, read_text
from prism_marl.sweeps.grid import Sweep, grid

FIELDS = ("tasks", "sharing", "learner", "preset", "options")


def load_sweep(path: Path) -> Sweep:
    """The sweep that a file describes."""
    made = _from_python(path) if path.suffix == ".py" else Sweep(path.stem, _from_json(path))
    if not made.experiments:
        raise UserError(f"{path.name}: this sweep has no experiments")
    return made


def cross(
    tasks: Iterable[str], methods: Iterable[str], variant: str = "default", learners: Iterable[str | None] = (None,)
) -> tuple[Experiment, ...]:
    """The preset of every task with every method and every learner; None is the learner of the task's benchmark."""
    methods, learners = tuple(methods), tuple(learners)
    return tuple(preset(task, method, variant, name) for task in tasks for name in learners for method in methods)


def _from_python(path: Path) -> Sweep:
    found: Any = getattr(load_file(path), "sweep", None)
    if found is None:
        raise UserError(f"{path.name}: there is no 'sweep' at its top level; define one, or a function of that name")
    if callable(found):
        found = found()
    if isinstance(found, Sweep):
        return found
    experiments = tuple(found) if isinstance(found, Iterable) else (found,)
    for item in experiments:
        if not isinstance(item, Experiment):
            raise UserError(f"{path.name}: 'sweep' holds a {type(item).__name__}; it should be a Sweep or experiments")
    return Sweep(path.stem, experiments)


def _from_json(path: Path) -> tuple[Experiment, ...]:
    try:
        data = parse_object(read_text(path, path.parent))
    except StrangeFileError as error:
        raise UserError(f"{path.name} {error}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path.name}: this is not JSON") from None
    if not isinstance(data, dict):
        raise UserError(f"{path.name}: expected an object with the fields {', '.join(FIELDS)}")
    for name in data:
        if name not in FIELDS:
            raise UserError(f"{path.name}: there is no field '{name}'; {nearest(name, FIELDS)}")
    options = data.get("options", {})
    if not isinstance(options, dict):
        raise UserError(f'{path.name}: options: expected an object such as {{"learner.lr": [0.001, 0.0005]}}')
    variant, learners = (
        str(data.get("preset", "default")),
        _words(path, data, "learner") if "learner" in data else [None],
    )
    bases = cross(_words(path, data, "tasks"), _words(path, data, "sharing"), variant, learners)
    return grid(bases, options)


def _words(path: Path, data: dict[str, Any], name: str) -> list[str]:
    found = data.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(word, str) for word in found):
        raise UserError(f"{path.name}: {name}: expected a list of names")
    return found
