"""``prism-marl play``: watch a trained team, at once with an example that comes with the package."""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from prism_marl.cli import filming
from prism_marl.cli.arguments import Arguments, some_path, whole
from prism_marl.cli.screen import show, table
from prism_marl.cli.trust import add_trusted_modules, check_trust, trusted_experiment
from prism_marl.errors import UserError, nearest
from prism_marl.experiment.plugins import load_modules
from prism_marl.policies import Policy, load_policy
from prism_marl.policies.episode import Moment, play_episode
from prism_marl.policies.examples import example_names, load_example
from prism_marl.render.draw import scene_to_text
from prism_marl.runs.machine import configure_jax
from prism_marl.runs.policies import load_policy as policy_of_run

PAUSE = 0.2  # seconds between two pictures in a terminal
LONGEST = 12.0  # seconds that an episode takes there; a longer one is shown faster


def run(argv: list[str]) -> int:
    """Show one greedy episode."""
    parser = Arguments("play", "Show one episode of a trained team, in the terminal or as a video.")
    parser.add_argument("what", nargs="?", help="an example (see --list), a run folder, or an exported policy")
    parser.add_argument("--list", action="store_true", help="list the examples, and stop")
    parser.add_argument("--out", type=some_path, metavar="FILE", help="write a video, FILE.gif or FILE.mp4")
    parser.add_argument("--episode", type=whole, default=0, help="which episode: 0, 1, 2, ...")
    parser.add_argument("--seed", type=whole, help="seed of a run folder to show (default: the first)")
    parser.add_argument("--camera", action="store_true", help="with --out, MuJoCo tasks: use MuJoCo's own renderer")
    add_trusted_modules(parser)
    found = parser.parse_strictly(argv)
    if found.list:
        _list()
        return 0
    _check(found)
    configure_jax()
    policy = _policy(found)
    if found.camera:
        filming.check_camera(policy.contract.task, str(found.out))
    _show(policy, play_episode(policy, found.episode), found)
    return 0


def _list() -> None:
    rows = table("Examples", ("name", "task", "method", "learner"), ("agents", "parameters", "steps of training"))
    for name in example_names():
        policy = load_example(name)
        c = policy.contract
        rows.add_row(name, c.task, c.method, c.learner, f"{c.agents}", f"{policy.parameters:,}", f"{c.steps:,}")
    show(rows)


def _check(found: argparse.Namespace) -> None:
    if found.what is None:
        raise UserError(f"play: say what; {nearest('', example_names())}; or give a run folder or a policy file")
    if not 0 <= found.episode < 2**31:
        raise UserError(f"--episode: {found.episode} is outside 0 to {2**31 - 1}")
    if found.out is not None:
        filming.check_target(str(found.out), "--out")
    if found.camera and found.out is None:
        raise UserError("--camera: pictures need a file; add --out FILE.gif or FILE.mp4")


def _policy(found: argparse.Namespace) -> Policy:
    """The policy that is asked for. Code that a run folder or a file names runs only if the user names it, too."""
    path = Path(found.what)
    if found.what in example_names():
        return load_example(found.what)
    if path.is_dir():
        trusted_experiment(path, found.module)
        return policy_of_run(path, found.seed)
    if not path.exists() and path.suffix == "":
        hint = nearest(found.what, example_names())
        raise UserError(f"play: there is no example, run folder or policy file '{found.what}'; {hint}")
    policy = load_policy(path, found.seed)
    files = [word for word in found.module if Path(word).is_file()]
    check_trust(policy.contract.task, set(found.module), load_modules(files), "the policy file")
    return policy


def _show(policy: Policy, moments: Iterator[Moment], found: argparse.Namespace) -> None:
    c, console = policy.contract, Console(highlight=False, markup=False)
    first = next(moments)  # whatever is wrong with the policy or the task is said now
    _refuse_undrawn(first, c.task)
    moments = itertools.chain([first], moments)
    title = f"{c.method} with {c.learner} on {c.task}, {c.agents} agents, {c.steps:,} steps of training"
    console.print(title, soft_wrap=True)
    if found.out is None and sys.stdout.isatty():
        total, steps = _animate(moments)
        where = ""
    else:
        kept = list(moments)
        total, steps = kept[-1].total, len(kept) - 1
        where = _filmed(kept, c.task, found) if found.out is not None else _printed(kept, console)
    console.print(f"return {total:.3f} in {steps} steps{where}", soft_wrap=True)


def _refuse_undrawn(moment: Moment, task: str) -> None:
    if moment.scene is None:
        raise UserError(f"play: '{task}' has no drawing; lbf, skirmish, mamujoco and reach tasks do")


def _animate(moments: Iterator[Moment]) -> tuple[float, int]:
    """Show an episode in the terminal as it is played."""
    total, steps, begun = 0.0, -1, time.monotonic()
    with Live(refresh_per_second=20, transient=False) as live:
        for moment in moments:
            steps, total = steps + 1, moment.total
            if moment.scene is not None:
                live.update(Text(scene_to_text(moment.scene)), refresh=True)
            left = LONGEST - (time.monotonic() - begun)
            time.sleep(PAUSE if left > 0 else 0)
    return total, steps


def _printed(moments: list[Moment], console: Console) -> str:
    kept = filming.thinned(moments, filming.TEXT_FRAMES)
    for moment in kept:
        if moment.scene is not None:
            console.print(scene_to_text(moment.scene))
            console.print()
    return f" ({len(kept)} of {len(moments)} pictures shown)" if len(kept) < len(moments) else ""


def _filmed(moments: list[Moment], task: str, found: argparse.Namespace) -> str:
    kept = filming.thinned(moments, filming.FILM_FRAMES)
    if found.camera:
        filming.save(filming.photographed(task, [moment.state for moment in kept]), found.out)
    else:
        filming.save([moment.scene for moment in kept if moment.scene is not None], found.out)
    return f": {found.out}"
