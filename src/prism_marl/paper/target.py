"""A target is one figure or table of the paper: its experiments, and a function from their results to the figure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.reports.figures import method_style
from prism_marl.reports.load import Run, load_run, on_common_grid
from prism_marl.sweeps.grid import Sweep, folder_of, is_finished

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """One line of a figure and its experiment; experiments of several curves are run once."""

    panel: str
    label: str
    experiment: Experiment
    colour: str
    dashes: Any = "-"
    essential: bool = True  # also part of the smallest scale
    reference: bool = False  # the other lines of its panel are compared with this one
    group: str = ""  # panels of one group are also compared together: different tasks, same question


@dataclass(frozen=True)
class Gathered:
    """The curves of a figure and the runs that are available for them."""

    curves: tuple[Curve, ...] = ()  # all curves of the figure at this scale
    available: tuple[tuple[Curve, Run], ...] = ()  # curves whose runs are finished and can be read
    missing: tuple[str, ...] = ()  # sentences about the others

    @property
    def panels(self) -> list[str]:
        """The titles of all panels in order, with and without runs."""
        return list(dict.fromkeys(curve.panel for curve in self.curves))

    def within(self, panel: str) -> list[tuple[Curve, Run]]:
        """The lines of a panel."""
        return [(curve, run) for curve, run in self.available if curve.panel == panel]


@dataclass(frozen=True)
class Result:
    """The result of a target: a figure, or none, and tables of plain values."""

    figure: "Figure | None" = None
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # title to rows


@dataclass(frozen=True)
class Target:
    """One figure or table. The argument of ``curves`` says whether battles run in StarCraft II."""

    name: str
    about: str
    plot: Callable[[Gathered], Result]
    curves: Callable[[bool], tuple[Curve, ...]] = lambda real: ()  # none if numbers are counted, not trained

    def sweep(self, curves: Iterable[Curve]) -> Sweep:
        """The experiments of curves, each once."""
        return Sweep(self.name, tuple(dict.fromkeys(curve.experiment for curve in curves)))


def method_curve(task: str, method: str, *, group: str = "", essential: bool = True) -> Curve:
    """A method with the paper's settings, in its usual colour; there is a panel for each task and group."""
    style, panel = method_style(method), f"{task}, {group}" if group else task
    return Curve(panel, style.label, reproduced(task, method), style.light, essential=essential, group=group)


def reproduced(task: str, method: str) -> Experiment:
    """The preset, with steps counted as the references count them: random ones before learning come on top."""
    found = preset(task, method)
    counts = hasattr(found.learner, "warmup_on_top")
    return found.with_option("learner.warmup_on_top", "true") if counts else found


def as_reference(curve: Curve) -> Curve:
    """The curve, as the reference of its panel."""
    return replace(curve, reference=True)


def ablation_tasks(real: bool) -> tuple[str, str]:
    """The tasks of the paper's ablations: a battle and a robot."""
    return battle("terran", real), "mamujoco/ant-4x2"


def battle(race: str, real: bool) -> str:
    """A SMACv2 map: the game itself, or our battle with the same units, observations and rewards."""
    return f"{'smacv2' if real else 'skirmish'}/{race}_5_vs_5"


def gather(curves: Sequence[Curve], runs_dir: Path) -> Gathered:
    """Load the finished runs of curves; ``missing`` names the others, because an unfinished run has no final value."""
    available, missing, loaded = [], [], {}
    for curve in curves:
        folder = folder_of(curve.experiment, runs_dir)
        name = f"{curve.panel}: {curve.label}"
        if not is_finished(folder):
            state = "not finished yet" if folder.exists() else "not run yet"
            missing.append(f"{name} is {state} and left out.")
            continue
        run = loaded[folder] = loaded.get(folder) or load_run(folder, replay_limit=0)
        if on_common_grid(run.evaluations, "return") is None:
            missing.append(f"{name} is left out: its rows cannot be read.")
            continue
        missing += [f"{name}: {note}" for note in run.notes]
        available.append((curve, run))
    return Gathered(tuple(curves), tuple(available), tuple(missing))
