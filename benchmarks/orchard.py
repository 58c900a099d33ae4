"""Do masks part for a reason? The demo's Prism where agents must differ and where they need not, and what masks carry.

    python benchmarks/orchard.py train --out runs/orchard       # continues where it stopped
    python benchmarks/orchard.py rows --out runs/orchard > docs/rows/masks/orchard.jsonl
    python benchmarks/orchard.py table docs/rows/masks/orchard.jsonl
    python benchmarks/orchard.py picture runs/demo --out docs/pictures/demo.png   # of a finished `make demo`

In ``orchard/6x6-3p-2f`` every agent can pick fruit of its own kind only; in ``orchard/6x6-3p-2f-any`` everybody can
pick everything. The demo's Prism has no ids and begins with equal masks, so whatever differs in the end has come from
training: by need in the first game, by chance in the second, where samples differ from agent to agent and nothing else
does. What tells need from chance is what the team loses when its agents exchange masks (``passed_on``) or all get the
first one's (``one_mask``).
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from masks import spectra  # beside this file

from prism_marl import api, envs
from prism_marl.cli.demo import LEARNER, MASKS_ALONE, METHODS, TASK
from prism_marl.paper.numbers import markdown_table
from prism_marl.policies import Policy
from prism_marl.policies.files import policy_file, read_policy
from prism_marl.reports import stats
from prism_marl.reports.figures import method_style
from prism_marl.reports.finals import SEED, final_of
from prism_marl.reports.load import load_evaluations, load_run, on_common_grid
from prism_marl.runs.machine import describe_machine

TASKS = (TASK, f"{TASK}-any")
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "Prism, the demo's: no ids, one start for all": ("prism", dict(MASKS_ALONE)),
    "the same, thresholds of their own": ("prism", MASKS_ALONE | {"sharing.threshold_init": "own"}),
    "Prism, the preset: ids, paper's letter": ("prism", {}),
    "FuPS": ("fups", {}),
    "FuPS+ID": ("fups_id", {}),
    "NoPS": ("nops", {}),
}
COLUMNS = {
    "return": "return",
    "before": "masks differ before",
    "after": "masks differ after",
    "passed_on": "return, masks passed on",
    "one_mask": "return, one mask for all",
}
EPISODES = 256
AGENTS = envs.describe(TASK).agents
LABEL = 0.13  # height of two lines in the picture, in units of the return
PERMUTED = ("weight", "bias")  # arrays of a policy that may have a row for each agent


def folder_of(out: Path, task: str, form: str) -> Path:
    return out / task.replace("/", "-") / "".join(letter for letter in form if letter.isalnum())


def train(out: Path, tasks: list[str], seeds: int, steps: int) -> None:
    for (form, (method, options)), task in itertools.product(FORMS.items(), tasks):
        options = {"run.eval_every": steps // 4, "run.save_every": 100, "run.eval_episodes": EPISODES} | options
        made = api.make_experiment(task, sharing=method, learner=LEARNER, seeds=seeds, steps=steps, options=options)
        api.train(made, out=folder_of(out, task, form), progress=False)


def exchanged(policy: Policy, rows: list[int]) -> Policy:
    """The same team in which agent i acts with what is agent ``rows[i]``'s own; ids stay with their agents."""
    tensors = {
        name: value[rows] if name.rpartition(".")[2] in PERMUTED and len(value) == len(rows) else value
        for name, value in policy.tensors.items()
    }
    return Policy(policy.contract, tensors)


def played(policy: Policy, task: str) -> float:
    """Mean return of greedy episodes, the same ones for every policy."""
    env: Any = envs.make(task)
    state, obs = jax.vmap(env.reset)(jax.random.split(jax.random.key(7), EPISODES))
    step = jax.jit(jax.vmap(env.step, in_axes=(None, 0, 0)))
    memory, going, total = policy.reset(EPISODES), np.ones(EPISODES, bool), np.zeros(EPISODES)
    for _ in range(env.spec.horizon):
        action, memory = policy.act(np.asarray(obs.local), memory)
        state, made = step(jax.random.key(0), state, jnp.asarray(action))
        total += going * np.asarray(made.reward)
        going &= ~np.asarray(made.terminated)
        obs = made.obs
    return float(total.mean())


def measured(folder: Path, task: str) -> Iterator[dict[str, Any]]:
    """One row for each seed."""
    final = final_of(load_evaluations(folder))
    assert final is not None
    layers = spectra(folder) if (folder / "spectra").is_dir() else {}
    own = [masks[..., common:].astype(bool) for _, masks, common in layers.values()]  # [2, seeds, identities, own]
    parted = [masks.any(axis=2) & ~masks.all(axis=2) for masks in own]
    differ = np.concatenate(parted, axis=-1).mean(axis=-1) if parted else None
    for seed, value in enumerate(final.values):
        row: dict[str, Any] = {"seed": seed, "return": float(value)}
        if differ is not None:
            policy = read_policy(policy_file(folder, seed), folder)
            following = [(agent + 1) % AGENTS for agent in range(AGENTS)]
            row |= {"before": float(differ[0, seed]), "after": float(differ[1, seed])}
            row |= {"passed_on": played(exchanged(policy, following), task)}
            row |= {"one_mask": played(exchanged(policy, [0] * AGENTS), task)}
        yield row


def rows(out: Path, tasks: list[str]) -> None:
    for task, (form, (method, options)) in itertools.product(tasks, FORMS.items()):
        folder = folder_of(out, task, form)
        machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
        about = {"task": task, "form": form, "method": method, "options": options}
        about |= {"commit": machine["commit"], "device": machine["device"], "measured": describe_machine()["commit"]}
        for row in measured(folder, task):
            print(json.dumps(about | row))


def table_rows(path: Path, task: str) -> list[dict[str, Any]]:
    """One row for each form: interquartile means over seeds with 95% bootstrap intervals."""
    found = [row for line in path.read_text(encoding="utf-8").splitlines() if (row := json.loads(line))["task"] == task]
    made = []
    for form, these in itertools.groupby(found, key=lambda row: row["form"]):
        seeds = list(these)
        cells = {words: interval([row[name] for row in seeds if name in row]) for name, words in COLUMNS.items()}
        made.append({f"`{task}`": f"{form} ({len(seeds)} seeds)"} | cells)
    return made


def interval(values: list[float]) -> str:
    if not values:
        return ""
    middle, low, high = stats.bootstrap_interval([np.array(values)], seed=SEED)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def picture(demo: Path, path: Path) -> None:
    """Returns of the demo's three teams, and which own direction of Prism's first seed serves which agent."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    runs = [load_run(demo / method) for method in METHODS]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.4, 3.6), width_ratios=(1, 1.4), layout="constrained")
    draw_returns(left, runs)
    draw_masks(right, runs[0], exchange_costs(demo / next(iter(METHODS))))
    figure.savefig(path, dpi=110)


def draw_returns(axis: Any, runs: list[Any]) -> None:
    labels: list[tuple[float, str, str]] = []
    for run in runs:
        curves, style = on_common_grid(run.evaluations, "return"), method_style(run.method)
        size = next(row for row in run.footprint if row.method == run.method)
        assert curves is not None
        drawn = stats.bootstrap_interval([curves.values], seed=SEED)
        axis.fill_between(curves.steps / 1000, drawn.low, drawn.high, color=style.light, alpha=0.15, lw=0)
        axis.plot(curves.steps / 1000, drawn.estimate, color=style.light, lw=2)
        words = f"{style.label}: {size.parameters:,.0f} parameters,\n{size.private / AGENTS:,.0f} of each agent's own"
        labels.append((float(drawn.estimate[-1]), words, style.light))
    height = -1.0
    for value, words, colour in sorted(labels):
        height = max(value, height + LABEL)
        axis.text(1.02, height, words, color=colour, fontsize=8, va="center", transform=axis.get_yaxis_transform())
    axis.axhline(1 / AGENTS, color="#999999", lw=0.8, ls=":")
    axis.text(
        1, 1 / AGENTS + 0.015, "the most that a team can earn which cannot tell who is who", fontsize=7, color="#777"
    )
    seeds = len(runs[0].evaluations)
    axis.set(xlabel="thousand environment steps", ylabel="share of the fruit picked", ylim=(0, 1))
    axis.set_title(f"Agents that see alike and must differ ({seeds} seeds)", fontsize=9.5, loc="left")
    axis.spines[["top", "right"]].set_visible(False)


def draw_masks(axis: Any, run: Any, lost: str) -> None:
    """Directions ordered by who uses them; filled: on."""
    colours = ("#0a63b0", "#cf5500", "#00855f", "#c14a86")
    first, own = (
        np.concatenate([layer.mask[at, 0, :, layer.common :] for layer in run.spectra.layers], axis=-1).astype(bool)
        for at in (0, -1)
    )
    agents, number = own.shape
    order = sorted(range(number), key=lambda k: (own[:, k].sum(), tuple(~own[:, k])))
    for agent, place in itertools.product(range(agents), range(number)):
        on = own[agent, order[place]]
        axis.add_patch(_cell(place, agent, colours[agent % len(colours)] if on else "#f0f0ed"))
    before, after = (int((masks.any(0) & ~masks.all(0)).sum()) for masks in (first, own))
    axis.set(xlim=(-0.5, number), ylim=(agents, -0.2), yticks=np.arange(agents) + 0.45, xticks=[])
    axis.set_yticklabels([f"agent {agent + 1}" for agent in range(agents)], fontsize=8.5)
    axis.tick_params(length=0)
    axis.set_xlabel(
        f"{number} own directions of Prism's layers, by who uses them; grey: switched off. Agents read no id.\n"
        f"Masks differ in {before} of them before training and in {after} after it.\n{lost}",
        fontsize=8,
    )
    axis.set_title("Which direction serves which agent (Prism, first seed)", fontsize=9.5, loc="left")
    axis.spines[:].set_visible(False)


def exchange_costs(folder: Path) -> str:
    """What the first seed's team earns as trained, and with every mask passed on to the next agent."""
    policy = read_policy(policy_file(folder, 0), folder)
    passed = exchanged(policy, [(agent + 1) % AGENTS for agent in range(AGENTS)])
    return f"Passing masks on takes the return from {played(policy, TASK):.2f} to {played(passed, TASK):.2f}."


def _cell(place: int, agent: int, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((place, agent), 0.86, 0.9, facecolor=colour, lw=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "rows", "table", "picture"))
    parser.add_argument("source", nargs="?", type=Path, help="table: the file of rows; picture: the demo's folder")
    parser.add_argument("--out", type=Path, default=Path("runs/orchard"))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200_000)
    found = parser.parse_args()
    if found.what == "train":
        train(found.out, found.tasks, found.seeds, found.steps)
    elif found.what == "rows":
        rows(found.out, found.tasks)
    elif found.what == "picture":
        picture(found.source, found.out)
    else:
        for task in found.tasks:
            print("\n".join(["", *markdown_table(table_rows(found.source, task))]))


if __name__ == "__main__":
    main()
