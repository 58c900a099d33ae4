"""Prism with 0, 1/2, 1, 2 and 10 times the paper's weights of the diversity and orthogonality terms."""

import functools

from prism_marl.paper.panels import curve_result, variation
from prism_marl.paper.target import Curve, Target, ablation_tasks, method_curve

TIMES = (0.0, 0.5, 1.0, 2.0, 10.0)
TERMS = {"diversity": "diversity", "ortho": "orthogonality"}  # field to name
MAIN = (0.0, 1.0, 10.0)


def _curves(real: bool) -> tuple[Curve, ...]:
    """A row of panels for each term; the line with factor 1 is Prism, and the same run in both rows."""
    made = []
    for term, name in TERMS.items():
        for task in ablation_tasks(real):
            for index, factor in enumerate(TIMES):
                base = method_curve(task, "prism", group=name, essential=factor in MAIN)
                weight = factor * getattr(base.experiment.sharing, term)
                made.append(variation(base, f"sharing.{term}", weight, f"{factor:g} × weight", index, len(TIMES)))
    return tuple(made)


TARGETS = (
    Target(
        "fig-regularisers",
        "diversity and orthogonality at 0, 1/2, 1, 2 and 10 times their weights (two Figures 'regularization')",
        functools.partial(curve_result, columns=2),
        _curves,
    ),
)
