"""``prism-marl diversity``: how far the agents of a trained team differ, and how to read it."""

import contextlib
import math
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from prism_marl.cli.arguments import Arguments, some_path, whole
from prism_marl.cli.screen import counted, show, show_json, table
from prism_marl.cli.trust import add_trusted_modules, trusted_experiment
from prism_marl.collect.visits import visits
from prism_marl.errors import UserError
from prism_marl.measures.record import measure_now
from prism_marl.runs.diversity import as_columns, check_episodes
from prism_marl.runs.machine import configure_jax, full_memory_explained
from prism_marl.runs.trained import UNSEEN, load_trained

COLUMNS = {  # of the first table
    "snd": "diversity",
    "snd_chance": "chance",
    "snd_by_matrices": "by matrices",
    "private_share": "private share",
    "mask_distance": "masks differ",
    "gradient_cosine": "gradient cosine",
    "gradients_opposed": "pairs opposed",
}
READ = """\
diversity: system neural diversity, how differently two agents act on the same observation, averaged over pairs; 0 =
  all agents have the same policy. chance: the same for separate, randomly initialised networks.
by matrices: diversity when all agents read the same id, so that only their weight matrices can differ.
private share: relative difference of two agents' matrices; 0 = the same matrices, 1 = independent matrices (chance).
masks differ: share of mask entries in which two agents differ; "-" if the method has no masks.
gradient cosine: 1 = the gradients of two agents on shared parameters agree, 0 = unrelated (chance), -1 = opposed;
  "-" if agents share no parameters. pairs opposed: share of pairs with a negative cosine (chance: half)."""


def run(argv: list[str]) -> int:
    """Measure the newest checkpoint of a run folder."""
    parser = Arguments("diversity", "Measure how far the agents of a trained team differ.")
    parser.add_argument("run", type=some_path, help="run folder")
    parser.add_argument("--seed", type=whole, help="only this seed (default: all seeds of the run)")
    parser.add_argument(
        "--episodes", type=whole, help="episodes of each seed (default: 16; fewer if there are many observations)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    add_trusted_modules(parser)
    found = parser.parse_strictly(argv)
    experiment = trusted_experiment(found.run, found.module)
    first, last = experiment.run.seed, experiment.run.seed + experiment.run.seeds - 1
    if found.seed is not None and not first <= found.seed <= last:
        raise UserError(f"--seed: this run has seeds {first} to {last}, not {found.seed}")
    check_episodes(found.episodes)
    configure_jax()
    with full_memory_explained(), contextlib.ExitStack() as stack:
        trainer, state, complaints = load_trained(found.run)
        stack.enter_context(contextlib.closing(trainer))
        for complaint in complaints:
            Console(stderr=True).print(complaint, highlight=False, soft_wrap=True, markup=False)
        played = found.episodes or 4 * visits(trainer.learner.spec)
        rows = measure_now(trainer, state, UNSEEN, played)
        steps = np.asarray(state.seeds.steps).tolist()
    head = [{"seed": first + seed, "step": step} for seed, step in enumerate(steps)]
    rows = [one | row for one, row in zip(head, rows, strict=True) if found.seed in (None, one["seed"])]
    if found.json:
        show_json({"task": experiment.task, "method": experiment.sharing.method, "seeds": _without_nan(rows)})
        return 0
    title = f"{experiment.sharing.label} on {experiment.task}: {counted(played, 'episode')} of each seed"
    show(*(part for made in _tables(title, rows) for part in (made, "")), READ)
    return 0


def _tables(title: str, rows: list[dict[str, Any]]) -> list[Table]:
    """All seeds; every two agents; every layer."""
    seeds = table(title, ("seed",), ("steps", *COLUMNS.values()))
    for row in rows:
        seeds.add_row(str(row["seed"]), f"{row['step']:,}", *(_text(row.get(name, math.nan)) for name in COLUMNS))
    columns = as_columns(rows)
    parts = [seeds]
    if "distances" in columns:
        agents = [f"agent {agent + 1}" for agent in columns["agents"][0]]
        pairs = table("How differently two agents act (mean over seeds)", ("",), tuple(agents))
        for name, line in zip(agents, columns["distances"].mean(axis=0), strict=True):
            pairs.add_row(name, *map(_text, line))
        parts.append(pairs)
    measures = {"private_share": "private share", "gradient_cosine": "gradient cosine", "gradients_opposed": "opposed"}
    layers = list(dict.fromkeys(name.partition(".")[2] for name in columns if "." in name))
    if layers:
        each = table("Layer by layer (mean over seeds)", ("layer",), tuple(measures.values()))
        none = np.full(len(rows), np.nan)
        for layer in layers:
            found = (columns.get(f"{name}.{layer}", none) for name in measures)
            each.add_row(layer, *(_text(float(values.mean())) for values in found))
        parts.append(each)
    return parts


def _text(value: float) -> str:
    """Three decimals; a number that is not there is a dash, and one that is only nearly 0 does not look like 0."""
    if not math.isfinite(value):
        return "-"
    return f"{value:.0e}" if 0 < abs(value) < 0.0005 else f"{value:.3f}"


def _without_nan(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON has no NaN."""

    def plain(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return [{name: plain(value) for name, value in row.items()} for row in rows]
