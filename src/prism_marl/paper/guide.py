"""Writes the page docs/reproduce.md from the plans of all targets.

python -m prism_marl.paper.guide docs/reproduce.md
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from prism_marl.experiment.experiment import Experiment
from prism_marl.paper.plan import in_words, needed_bytes, size_in_words, time_of
from prism_marl.paper.registry import TARGETS
from prism_marl.paper.scales import SCALES, Scale, at_scale
from prism_marl.paper.speeds import Speed, recorded
from prism_marl.paper.target import Target

INTRODUCTION = """\
# Reproducing the paper

Each figure and table of the paper has one command:

    prism-marl reproduce                                     # lists all figures and tables
    prism-marl reproduce fig-lbf --scale laptop --plan       # prints the experiments, memory and time; starts nothing
    prism-marl reproduce fig-lbf --scale laptop              # trains the unfinished experiments, then draws the figure
    prism-marl reproduce fig-lbf --scale laptop --draw-only  # draws the figure again from the finished runs

The command writes the figure as PNG and PDF, and its numbers as JSON and Markdown, to `runs/reproduce/figures/`
(`--out` replaces `runs/reproduce`). After an interruption the same command continues. Figures share experiments: for
example, the masking ablation uses the runs of the performance figures. Runs that are missing or unfinished are left
out of the figure, and a line says so. `--jobs 4` trains four experiments at a time; `--executor ray --address auto`
uses a Ray cluster.

* Intervals are 95% percentile bootstrap intervals (seed 0) of the interquartile mean over seeds: 2,000 resamples for
  curves, 50,000 for final numbers. "Probability that the reference is better" compares final returns of pairs of
  seeds; a tie counts one half. For several panels it is the mean over panels, and seeds are resampled within their
  panel.
* SMACv2's maps run as `skirmish/`: same units, observations, actions and rewards, but other dynamics. With `--real`
  they run in SMACv2 itself; you need StarCraft II and the package smacv2. The MuJoCo robots need the extra `mujoco`.
* Settings are the presets (`prism-marl list`, `table-settings`). On LBF our default has other values than the paper's
  table, because with the table no method ends above 0.2 ([results](results.md)); `train --preset table` has those of
  the table. On MuJoCo all critics have LayerNorm. At the scales `smoke` and `laptop`, the decay of epsilon and the
  random steps before clustering take at most a third of the steps; `smoke` also has small batches.
* SePS and AdaPS take 50,000 (LBF), 100,000 (SMACv2) or 200,000 (MuJoCo) random steps before they learn: 2% of the
  paper's steps, and up to a third at the smaller scales.

`python -m prism_marl.paper.guide docs/reproduce.md` generates this page. Memory is that of the largest experiment:
networks, optimisers and replay buffers of all its seeds, computed from their shapes. A process of Python, JAX and XLA
needs about 1 GiB more. Times assume that experiments run one after the other, and that no run exists yet. They come
from `src/prism_marl/paper/speeds.json`, which records every speed with its machine. They are only an order of
magnitude: the CPU was busy with other work when we measured, and we measured only some methods. "?" means that we
have no measurement for such an experiment on such a machine.
"""
COLUMNS = {"cpu": "time, 2 CPU cores", "gpu": "time, H200"}


def guide() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    speeds = recorded()
    for scale in SCALES.values():
        parts += [f"## `--scale {scale.name}`: {scale.about}", "", *scale_table(scale, speeds), ""]
    parts += [
        "## Tables of parameter counts and settings: no training, a few seconds on any machine",
        "",
        *_counted_table(),
        "",
    ]
    return "\n".join(parts)


def scale_table(scale: Scale, speeds: Sequence[Speed], targets: Mapping[str, Target] = TARGETS) -> list[str]:
    """One line for each target that trains."""
    lines = [
        f"| command | what | experiments | memory | {' | '.join(COLUMNS.values())} |",
        f"|---|---|--:|--:|{'--:|' * len(COLUMNS)}",
    ]
    for target in targets.values():
        experiments = target.sweep(at_scale(target.curves(False), scale)).experiments
        if experiments:
            lines.append(_line(target, scale, experiments, speeds))
    return lines


def _line(target: Target, scale: Scale, experiments: Sequence[Experiment], speeds: Sequence[Speed]) -> str:
    memory = size_in_words(max(needed_bytes(experiment) for experiment in experiments))
    times = [_time(experiments, platform, speeds) for platform in COLUMNS]
    command = f"`prism-marl reproduce {target.name} --scale {scale.name}`"
    return f"| {command} | {target.about} | {len(experiments)} | {memory} | {' | '.join(times)} |"


def _time(experiments: Sequence[Experiment], platform: str, speeds: Sequence[Speed]) -> str:
    times = [time_of(experiment, platform, (), speeds)[0] for experiment in experiments]
    known = [seconds for seconds in times if seconds is not None]
    if not known:
        return "?"
    rest = len(times) - len(known)
    return in_words(sum(known)) + (f" + {rest} x ?" if rest else "")


def _counted_table() -> list[str]:
    lines = ["| command | what |", "|---|---|"]
    counted = [target for target in TARGETS.values() if not target.curves(False)]
    return lines + [f"| `prism-marl reproduce {target.name}` | {target.about} |" for target in counted]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(guide(), encoding="utf-8")
