"""How much of the spectrum everybody shares: nothing, a quarter, half of it."""

import functools

from prism_marl.paper.panels import curve_drawing, variation
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
            place,
            len(RATIOS),
        )
        for task in ablation_tasks(real)
        for place, ratio in enumerate(RATIOS)
    )


TARGETS = (
    Target(
        "fig-common-ratio",
        "Prism with 0, 0.25 and 0.5 of the spectrum in common (Figure 'common mask ratio')",
        functools.partial(curve_drawing, columns=2),
        _curves,
    ),
)
