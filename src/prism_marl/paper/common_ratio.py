"""How much of the spectrum everybody shares: nothing, a quarter, half of it."""

import functools
from dataclasses import replace

from prism_marl.paper.panels import curve_drawing, ramp
from prism_marl.paper.target import Curve, Target, as_reference, battle, method_curve
from prism_marl.plots import DASHES

RATIOS = (0.0, 0.25, 0.5)
MAIN = (0.0, 0.5)


def _curves(real: bool) -> tuple[Curve, ...]:
    made = []
    for task in (battle("terran", real), "mamujoco/ant-4x2"):
        for place, ratio in enumerate(RATIOS):
            base = method_curve(task, "prism", essential=ratio in MAIN)
            curve = replace(
                base,
                label=f"common ratio {ratio:g}",
                experiment=base.experiment.with_option("sharing.common", str(ratio)),
            )
            if curve.experiment == base.experiment:
                made.append(as_reference(replace(curve, label=f"{curve.label} (Prism)")))
            else:
                made.append(replace(curve, colour=ramp(place, len(RATIOS)), dashes=DASHES[1 + place]))
    return tuple(made)


TARGETS = (
    Target(
        "fig-common-ratio",
        "Prism with 0, 0.25 and 0.5 of the spectrum in common (Figure 'common mask ratio')",
        functools.partial(curve_drawing, columns=2),
        _curves,
    ),
)
