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

One command for each figure and table:

    prism-marl reproduce                                     # all targets
    prism-marl reproduce fig-lbf --scale laptop --plan       # what would run, its memory and time; nothing is started
    prism-marl reproduce fig-lbf --scale laptop              # train what is not finished, then draw
    prism-marl reproduce fig-lbf --scale laptop --draw-only  # draw again from what is there

The figure is written as PNG and PDF, its numbers as JSON and Markdown, all to `runs/reproduce/figures/` (`--out` moves
`runs/reproduce`). The same command continues after an interruption. An experiment has one folder, whichever figure
asks for it: the masking ablation finds the runs of the performance figures. What is missing or unfinished is left out
of the figure, and a line says so. `--jobs 4` trains four experiments at a time; `--executor ray --address auto` uses a
Ray cluster.

* Intervals are 95% percentile bootstrap intervals (seed 0) of the interquartile mean over seeds: 2,000 resamples for
  curves, 50,000 for final numbers. "Probability that the reference is better" compares final returns seed by seed, a
  tie counting one half; over several panels it is the mean over panels, seeds being redrawn within their panel.
* SMACv2's maps run as `skirmish/`: same units, observations, actions and rewards, other dynamics. With `--real` they
  run in StarCraft II, where it and the package smacv2 are installed. Robots need the extra `mujoco`.
* Settings are the presets (`prism-marl list`, `table-settings`). On LBF the default has other values than the paper's
  table, with which no method ends above 0.2 ([results](results.md)); `train --preset table` is the table. All critics
  of robots have LayerNorm. At scale `smoke` and `laptop`, exploration and random play before clustering never take
  more than a third of the steps; `smoke` also has small batches.
* SePS and AdaPS play 50,000 (LBF), 100,000 (battles) or 200,000 (robots) random steps before they learn: 2% of the
  paper's steps, and up to a third at the smaller scales.

This page is written by `python -m prism_marl.paper.guide docs/reproduce.md`. Memory is that of the largest experiment:
networks, optimisers and replay buffers of all its seeds, from their shapes; a process of Python, JAX and XLA needs
about 1 GiB besides. Times are for one experiment after the other, each figure from the beginning. They come from
`src/prism_marl/paper/speeds.json`, where every speed is kept with its machine, and are good for an order of magnitude:
the CPU had other work to do while it was timed, and only for some methods. "?": nothing like it has been timed on such
a machine.
"""
COLUMNS = {"cpu": "time, 2 CPU cores", "gpu": "time, H200"}


def guide() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    speeds = recorded()
    for scale in SCALES.values():
        parts += [f"## `--scale {scale.name}`: {scale.about}", "", *scale_table(scale, speeds), ""]
    parts += ["## Counted, not trained: a few seconds on any machine", "", *_counted_table(), ""]
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
