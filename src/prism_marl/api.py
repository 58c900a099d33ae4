"""The Python API: train, evaluate, read and report runs. The command line calls the same functions.

Folders can be given as ``str`` or ``Path``. What cannot work raises ``UserError`` with one sentence that says what to
change.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from prism_marl.errors import UserError, install_command
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset as preset_of
from prism_marl.monitor import Monitor, ProgressBar, Quiet
from prism_marl.policies.export import Exported
from prism_marl.runs.exporting import export_run
from prism_marl.runs.folder import extend as extend_folder
from prism_marl.runs.folder import load_experiment, refuse_strange_folder
from prism_marl.runs.machine import full_memory_explained, jax_settings
from prism_marl.runs.runner import run as run_experiment
from prism_marl.runs.trackers import check_sinks, tracked
from prism_marl.runs.trained import load_trained, measured
from prism_marl.runs.warm_start import Freeze, begun_from, keep_networks

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]

    from prism_marl.reports.load import Curves

Folder = str | Path
Kind = Literal["eval", "train"]


def make_experiment(
    task: str,
    *,
    sharing: str = "prism",
    learner: str | None = None,
    preset: str = "default",
    options: Mapping[str, Any] | None = None,
    **short: Any,
) -> Experiment:
    """What to train: the preset of a task and a method, with changes.

    Args:
        task: for example ``"lbf/10x10-3p-3f"``; ``prism-marl list`` shows all families.
        sharing: how agents share parameters, for example ``"prism"`` or ``"nops"``.
        learner: what learns, for example ``"qmix"``; by default the learner of the task's benchmark.
        preset: which preset to begin with.
        options: fields by their dotted names, such as ``{"learner.lr": 1e-3, "sharing.common": 0.25}``.
        short: fields that every run needs, by their last name: ``steps``, ``seeds``, ``seed``, ``envs``,
            ``eval_every``, ``eval_episodes``, ``save_every`` and ``width``.

    Returns:
        A frozen description, equal for equal experiments. ``train`` takes it in place of a task.
    """
    made = preset_of(task, sharing, preset, learner)
    named = {f"network.{name}" if name == "width" else f"run.{name}": value for name, value in short.items()}
    for path, value in {**named, **(options or {})}.items():
        if value is not None:
            made = made.with_option(path, value)
    made.validate()
    return made


def train(
    task: str | Experiment,
    *,
    out: Folder | None = None,
    begin_from: "Folder | Run | None" = None,
    freeze: Freeze = "nothing",
    progress: bool | Monitor = True,
    trackers: Iterable[str] = (),
    deterministic: bool = False,
    tf32: bool = False,
    strict: bool = False,
    **settings: Any,
) -> "Run":
    """Train a team, or continue a run that was interrupted. A finished run is left as it is.

    Args:
        task: a task name, with the settings of ``make_experiment`` as further arguments, or an ``Experiment``.
        out: the run folder; by default ``runs/TASK/METHOD-HASH``. It belongs to one experiment for good.
        begin_from: a run whose agents' networks are the start, with the same method; new agents get fresh numbers.
        freeze: ``"shared"``: only what belongs to single agents learns.
        progress: a progress bar on standard error, nothing, or a monitor of your own.
        trackers: ``"tensorboard"``, ``"wandb"``; they get a copy of all rows.
        deterministic: the same bits every time on a GPU too, at some cost in speed.
        tf32: let a GPU round the inputs of products to TF32, which is faster.
        strict: refuse to go on with a run under other versions, flags or devices than those it was begun with.

    Returns:
        The run, whose curves can be read at once.
    """
    if isinstance(task, Experiment):
        if settings:
            raise UserError(f"{next(iter(settings))}: an Experiment holds all settings; change it before training")
        chosen = task
    else:
        chosen = make_experiment(task, **settings)
    if begin_from is None:
        if freeze != "nothing":
            raise UserError(
                "--freeze: only a run that begins with another run's networks has what can be frozen: --from"
            )
        folder = Path(out) if out is not None else chosen.folder(Path("runs"))
    else:
        source = begin_from.folder if isinstance(begin_from, Run) else Path(begin_from)
        chosen.validate()
        with jax_settings(deterministic=deterministic, tf32=tf32):
            chosen, networks = begun_from(source, chosen, freeze)
        folder = Path(out) if out is not None else chosen.folder(Path("runs"))
        refuse_strange_folder(folder)
        keep_networks(networks, folder)
    return _train(chosen, folder, progress, trackers, deterministic=deterministic, tf32=tf32, strict=strict)


def extend(
    run: "Folder | Run",
    *,
    steps: int,
    progress: bool | Monitor = True,
    trackers: Iterable[str] = (),
    deterministic: bool = False,
    tf32: bool = False,
    strict: bool = False,
) -> "Run":
    """Continue a finished run to a larger budget; nothing but the budget changes, and ``config.json`` records it.

    Args:
        run: a finished run folder.
        steps: environment steps in total, more than the run has.
        progress: as for ``train``.
        trackers: as for ``train``.
        deterministic: as for ``train``.
        tf32: as the run was begun.
        strict: as for ``train``.

    Returns:
        The run. The same call continues it where it was interrupted.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    how = {"deterministic": deterministic, "tf32": tf32, "strict": strict}
    return _train(extend_folder(folder, steps), folder, progress, trackers, **how)


def _train(
    chosen: Experiment,
    folder: Path,
    progress: bool | Monitor,
    trackers: Iterable[str],
    *,
    deterministic: bool,
    tf32: bool,
    strict: bool,
) -> "Run":
    from prism_marl.reports.outcome import tell_outcome

    chosen.validate()
    refuse_strange_folder(folder)
    names = check_sinks(",".join(trackers) or None)
    title = f"{chosen.sharing.label} · {chosen.task} · {chosen.run.seeds} seed(s)"
    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(jax_settings(deterministic=deterministic, tf32=tf32))
        monitor: Monitor = Quiet() if progress is False else ProgressBar(chosen.run.steps, title)
        if not isinstance(progress, bool):
            monitor = progress
        if isinstance(monitor, ProgressBar):
            stack.enter_context(monitor)
        for sentence in [] if (folder / "done").exists() else chosen.warnings():
            monitor.note(f"warning: {sentence}")
        watched = stack.enter_context(tracked(monitor, names, chosen, folder))
        run_experiment(chosen, folder, watched, cache, strict=strict)
        tell_outcome(folder, monitor, chosen.run.steps)
        monitor.note(f"done: {folder}")
    return Run(folder)


def evaluate(run: "Folder | Run", *, episodes: int = 100) -> dict[str, np.ndarray]:
    """Greedy episodes with the newest checkpoint of a run, on episodes that training never played.

    Returns:
        ``return``, ``length`` and the task's own metrics, each one number per seed.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    with jax_settings(), full_memory_explained():
        trainer, state, _ = load_trained(folder, episodes)
        with contextlib.closing(trainer):
            return measured(trainer, state)


def load_run(folder: Folder) -> "Run":
    """Open a run folder, finished or not."""
    run = Run(Path(folder))
    _ = run.experiment  # whatever is wrong with the folder is said now
    return run


def export(
    run: "Folder | Run",
    path: Folder,
    *,
    seed: int | None = None,
    agent: int | None = None,
    factored: bool = False,
) -> Exported:
    """Write a trained policy for use elsewhere, with a description beside it (``PATH.json``).

    Args:
        run: a run folder; the policy is that of its newest checkpoint.
        path: a file that ends in ``.onnx``, ``.safetensors`` or ``.npz``.
        seed: which of the run's seeds; by default the first.
        agent: only this agent; by default the whole team.
        factored: store the singular vectors that agents share once, layer by layer where that is smaller.

    Returns:
        What was written: paths, sizes and the measured time of one call.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    with jax_settings(), full_memory_explained():
        return export_run(folder, Path(path), seed=seed, agent=agent, factored=factored)[0]


def report(runs: Sequence["Folder | Run"], *, out: Folder, title: str | None = None) -> Path:
    """Write the page of some runs, or of all runs below some folders.

    Args:
        runs: run folders, or folders that hold them.
        out: a folder for the page and its figures, or ``NAME.html`` for the page alone.

    Returns:
        The page.
    """
    from prism_marl.reports.load import find_runs
    from prism_marl.reports.page import write_page, write_report  # matplotlib only where something is drawn

    folders = [run.folder if isinstance(run, Run) else Path(run) for run in runs]
    if not any(find_runs(folder, allow_none=True) for folder in folders):
        where = ", ".join(map(str, folders))
        raise UserError(f"there are no runs in {where}: give run folders of `prism-marl train`, or folders above them")
    write = write_report if Path(out).suffix.lower() in (".html", ".htm") else write_page
    return write(folders, Path(out), title)


@dataclass(frozen=True)
class Run:
    """A run folder: what was trained, and the rows that it wrote."""

    folder: Path

    @cached_property
    def experiment(self) -> Experiment:
        """What was trained."""
        return load_experiment(self.folder)

    @property
    def finished(self) -> bool:
        """Whether the run reached its end."""
        return (self.folder / "done").exists()

    def curve(self, metric: str = "return", kind: Kind = "eval") -> "Curves":
        """One metric of all seeds on one grid of steps: ``steps`` [points], ``values`` [seeds, points], ``seeds``.

        Seeds that reach their evaluations at different steps are interpolated linearly, and the grid is cut to the
        range that every seed covers. ``kind`` is ``"eval"`` for evaluations, ``"train"`` for metrics of learning.
        """
        from prism_marl.reports.load import metric_names, on_common_grid

        seeds = self._seeds(kind)
        found = on_common_grid(seeds, metric)
        if found is None:
            known = ", ".join(metric_names(seeds)) or "no metric yet"
            raise UserError(f"{self.folder}: {kind}.jsonl has no metric '{metric}'; it has {known}")
        return found

    def dataframe(self, kind: Kind = "eval") -> "pandas.DataFrame":
        """All rows as a table of pandas, which has to be installed."""
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ModuleNotFoundError:
            raise UserError(f"dataframe: pandas is not installed: {install_command('pandas')}") from None
        parts = [pandas.DataFrame({"seed": one.seed, "step": one.steps, **one.metrics}) for one in self._seeds(kind)]
        return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame(columns=["seed", "step"])

    def evaluate(self, *, episodes: int = 100) -> dict[str, np.ndarray]:
        """See ``prism_marl.evaluate``."""
        return evaluate(self.folder, episodes=episodes)

    def _seeds(self, kind: Kind) -> Any:
        from prism_marl.reports.load import load_run

        if kind not in ("eval", "train"):
            raise UserError(f"kind: there is no '{kind}'; take 'eval' or 'train'")
        loaded = load_run(self.folder, spectra_limit=0, replay_limit=0)
        return loaded.evaluations if kind == "eval" else loaded.training
