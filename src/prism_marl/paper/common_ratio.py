"""Prism with different shares of common singular values: none, a quarter, half."""

import functools

from prism_marl.paper.panels import curve_result, variation
from prism_marl.paper.target import Curve, Target, ablation_tasks, method_curve

RATIOS = (0.0, 0.25, 0.5)
MAIN = (0.0, 0.5)


def _curves(real: bool) -> tuple[Curve, ...]:
    return tuple(
        variation(
            method_curve(task, "prism", essential=ratio in MAIN),
            "sharing.common",
            ratio,
            f"common ratio {ratio:g}",
            index,
            len(RATIOS),
        )
        for task in ablation_tasks(real)
        for index, ratio in enumerate(RATIOS)
    )


TARGETS = (
    Target(
        "fig-common-ratio",
        "Prism with 0, 0.25 and 0.5 of the spectrum in common (Figure 'common mask ratio')",
        functools.partial(curve_result, columns=2),
        _curves,
    ),
)
