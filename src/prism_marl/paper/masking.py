"""The effect of the masks: sharing with ids, the same with factorised layers, and Prism."""

import functools

from prism_marl.paper.panels import curve_result
from prism_marl.paper.target import Curve, Target, ablation_tasks, as_reference, method_curve


def _curves(real: bool) -> tuple[Curve, ...]:
    made = []
    for task in ablation_tasks(real):
        made += [method_curve(task, method) for method in ("fups_id", "fups_id_svd")]
        made.append(as_reference(method_curve(task, "prism")))
    return tuple(made)


TARGETS = (
    Target(
        "fig-masking",
        "FuPS+ID, FuPS+ID with SVD, and Prism (Figure 'spectral masking')",
        functools.partial(curve_result, columns=2),
        _curves,
    ),
)
