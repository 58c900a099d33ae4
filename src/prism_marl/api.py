"""The Python API: train, evaluate, read and report runs. The command line calls the same functions.

Folders are ``str`` or ``Path``. Wrong input raises ``UserError`` with one sentence that says what to change.
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
    """Describe an experiment: the preset of a task and a sharing method, with your changes.

    Args:
        task: for example ``"lbf/10x10-3p-3f"``; ``prism-marl list`` shows all families.
        sharing: how agents share parameters, for example ``"prism"`` or ``"nops"``.
        learner: for example ``"qmix"``, the default for discrete actions; for continuous ones it is ``"matd3"``.
        preset: the settings to start from; ``prism-marl list`` shows all presets.
        options: settings by their dotted names, such as ``{"learner.lr": 1e-3, "sharing.common": 0.25}``.
        short: frequent settings by their last name: ``steps``, ``seeds``, ``seed``, ``envs``,
            ``eval_every``, ``eval_episodes``, ``save_every`` and ``width``.

    Returns:
        A frozen dataclass; equal settings give equal objects. You can pass it to ``train`` in place of a task.
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
        out: the run folder; by default ``runs/TASK/METHOD-HASH``. A folder belongs to one experiment.
        begin_from: a run whose agents' networks to start from; private parameters of additional agents are new.
        freeze: with ``begin_from``: ``"shared"`` trains private parameters only.
        progress: ``True`` for a progress bar on standard error, ``False`` for none, or your own ``Monitor``.
        trackers: ``"tensorboard"``, ``"wandb"``: these get a copy of all metrics.
        deterministic: bit-identical results on a GPU, too; a little slower.
        tf32: faster matrix products on a GPU, with TF32 precision.
        strict: refuse to continue a run with other package versions, flags or devices.

    Returns:
        The run; ``curve`` reads its learning curves.
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
                "--freeze: only networks that come from another run can be frozen; name that run with --from"
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
    """Train a finished run further, to a larger number of steps. Its other settings stay.

    Args:
        run: a finished run folder.
        steps: new total of environment steps of each seed, more than the run has.
        progress: as for ``train``.
        trackers: as for ``train``.
        deterministic: as for ``train``.
        tf32: the value with which the run was started.
        strict: as for ``train``.

    Returns:
        The run. If it was interrupted, the same call continues it.
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
    """Evaluate the newest checkpoint of a run in new greedy episodes, whose random keys training never uses.

    Returns:
        ``return``, ``length`` and the task's own metrics, each with one mean per seed.
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
    """Write a trained policy to a file for use elsewhere, and its description to ``PATH.json``.

    Args:
        run: a run folder; the policy is that of its newest checkpoint.
        path: a file that ends in ``.onnx``, ``.safetensors`` or ``.npz``.
        seed: which of the run's seeds; by default the first.
        agent: only this agent; by default the whole team.
        factored: store shared singular vectors once, in layers in which this is smaller.

    Returns:
        What was written: paths, sizes and the measured time of one call.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    with jax_settings(), full_memory_explained():
        return export_run(folder, Path(path), seed=seed, agent=agent, factored=factored)[0]


def report(runs: Sequence["Folder | Run"], *, out: Folder, title: str | None = None) -> Path:
    """Write an HTML page that compares runs.

    Args:
        runs: run folders, or folders that contain run folders.
        out: a folder for the page and its figures, or ``NAME.html`` for the page alone.

    Returns:
        The path of the page.
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
    """A run folder: the experiment and its metrics."""

    folder: Path

    @cached_property
    def experiment(self) -> Experiment:
        """All settings of the run."""
        return load_experiment(self.folder)

    @property
    def finished(self) -> bool:
        """Whether the run reached its end."""
        return (self.folder / "done").exists()

    def curve(self, metric: str = "return", kind: Kind = "eval") -> "Curves":
        """The curve of one metric: ``steps`` [points], ``values`` [seeds, points], ``seeds``.

        Seeds that reach their evaluations at different steps are interpolated linearly, and the grid is cut to the
        range that every seed covers. ``kind`` is ``"eval"`` for evaluations, ``"train"`` for training metrics.
        """
        from prism_marl.reports.load import metric_names, on_common_grid

        seeds = self._seeds(kind)
        found = on_common_grid(seeds, metric)
        if found is None:
            known = ", ".join(metric_names(seeds)) or "no metric yet"
            raise UserError(f"{self.folder}: {kind}.jsonl has no metric '{metric}'; it has {known}")
        return found

    def dataframe(self, kind: Kind = "eval") -> "pandas.DataFrame":
        """All metrics as a pandas ``DataFrame``; needs pandas."""
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
