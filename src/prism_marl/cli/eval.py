"""``prism-marl eval``: what a trained team does, in numbers and in pictures."""

import argparse
import contextlib
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prism_marl.cli import filming
from prism_marl.cli.arguments import Arguments, some_path, whole
from prism_marl.cli.screen import counted
from prism_marl.cli.trust import add_trusted_modules, trusted_experiment
from prism_marl.collect.compiled import CompiledCollector
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment
from prism_marl.render.draw import scene_to_text
from prism_marl.runs.machine import configure_jax, full_memory_explained
from prism_marl.runs.trained import load_trained, measured
from prism_marl.training.state import TrainState
from prism_marl.training.trainer import Trainer


def run(argv: list[str]) -> int:
    """Evaluate the newest checkpoint of a run folder."""
    parser = Arguments("eval", "Evaluate a trained team in greedy episodes: mean return and metrics of each seed.")
    parser.add_argument("run", type=some_path, help="run folder")
    parser.add_argument("--episodes", type=whole, default=100, help="episodes for each seed (default: 100)")
    parser.add_argument("--seed", type=whole, help="with --render: the seed to show (default: the first)")
    parser.add_argument("--episode", type=whole, default=0, help="with --render: the episode to show: 0, 1, 2, ...")
    parser.add_argument("--render", help="show one episode: FILE.gif, FILE.mp4, or 'text' for the terminal")
    add_trusted_modules(parser)
    parser.add_argument("--camera", action="store_true", help="with --render, MuJoCo tasks: use MuJoCo's own renderer")
    found = parser.parse_strictly(argv)
    experiment = trusted_experiment(found.run, found.module)
    seed = _check(found, experiment)
    configure_jax()
    with full_memory_explained(), contextlib.ExitStack() as stack:
        trainer, state, complaints = load_trained(found.run, found.episodes)
        stack.enter_context(contextlib.closing(trainer))
        for complaint in complaints:
            Console(stderr=True).print(complaint, highlight=False, soft_wrap=True, markup=False)
        if found.render and not _drawn(trainer):
            raise _undrawn(trainer)
        show_numbers(trainer, state)
        if found.render:
            render(trainer, state, seed, found.episode, found.render, camera=found.camera)
    return 0


def _check(found: argparse.Namespace, experiment: Experiment) -> int:
    """The index of the seed to watch; what cannot be shown is refused before a hundred episodes are played."""
    if found.camera:
        filming.check_camera(experiment.task, found.render)
    first, last = experiment.run.seed, experiment.run.seed + experiment.run.seeds - 1
    seed = first if found.seed is None else found.seed
    if found.render:
        filming.check_target(found.render)
        if not first <= seed <= last:
            raise UserError(f"--seed: this run has seeds {first} to {last}, not {seed}")
        if not 0 <= found.episode < 2**31:
            raise UserError(f"--episode: {found.episode} is outside 0 to {2**31 - 1}")
    return seed - first


def show_numbers(trainer: Trainer, state: TrainState) -> None:
    """One line per seed."""
    values = measured(trainer, state)
    run = trainer.experiment.run
    played = counted(run.eval_episodes, "greedy episode")
    title = f"{trainer.experiment.sharing.label} on {trainer.experiment.task}: {played}"
    table = Table(title=title)
    for column in ("seed", "steps", *values):
        table.add_column(column, justify="right")
    for index in range(run.seeds):
        steps = f"{int(state.seeds.steps[index]):,}"
        table.add_row(str(run.seed + index), steps, *(f"{value[index]:.3f}" for value in values.values()))
    Console(markup=False).print(table)


def _drawn(trainer: Trainer) -> bool:
    """Whether the environment has a drawing; one in Python may turn out to have none."""
    collector = trainer.collector
    return not isinstance(collector, CompiledCollector) or getattr(collector.env, "scene", None) is not None


def _undrawn(trainer: Trainer) -> UserError:
    drawn = "lbf, orchard, skirmish, mamujoco and reach tasks do"
    return UserError(f"--render: '{trainer.experiment.task}' has no drawing; {drawn}")


def render(trainer: Trainer, state: TrainState, seed: int, episode: int, target: str, *, camera: bool = False) -> None:
    """Watch one episode."""
    console, shown = Console(), ""
    if camera:
        pictures, total, steps = filming.film(trainer, state, seed, episode)
        filming.save(pictures, Path(target))
    else:
        scenes, total = trainer.watch(state, seed=seed, number=episode)
        if not scenes:
            raise _undrawn(trainer)
        steps = len(scenes) - 1
        if target == "text":
            kept = filming.thinned(scenes, filming.TEXT_FRAMES)
            for scene in kept:
                console.print(scene_to_text(scene), highlight=False, markup=False)
                console.print()
            shown = f" ({len(kept)} of {len(scenes)} pictures shown)" if len(kept) < len(scenes) else ""
        else:
            filming.save(filming.thinned(scenes, filming.FILM_FRAMES), Path(target))
    where = shown if target == "text" else f": {target}"
    console.print(f"return {total:.3f} in {steps} steps{where}", markup=False)
