"""Four methods with the number of parameters of NoPS and with half of it, and the tables of these numbers."""

import functools
from dataclasses import replace

from prism_marl.experiment.experiment import Net
from prism_marl.paper import budgets
from prism_marl.paper.numbers import cell_rows
from prism_marl.paper.panels import curve_result
from prism_marl.paper.target import Curve, Gathered, Result, Target, as_reference, method_curve

MAIN = ("nops", "prism")


def _curves(real: bool) -> tuple[Curve, ...]:
    """One row of panels for each budget, with the widths that follow from the paper's counts."""
    made = []
    for index, budget in enumerate(budgets.BUDGETS):
        for published, widths in budgets.published()["widths"].items():
            task = published if real else published.replace("smacv2/", "skirmish/")
            for method, pair in widths.items():
                curve = method_curve(task, method, group=budget, essential=method in MAIN)
                curve = replace(curve, experiment=curve.experiment.changed(network=Net(width=pair[index])))
                made.append(as_reference(curve) if method == "prism" else curve)
    return tuple(made)


def _table(gathered: Gathered) -> Result:
    cells = budgets.budget_cells(budgets.published())
    return Result(tables={"Parameters under both budgets": cell_rows(cells, "budget")})


TARGETS = (
    Target(
        "fig-budgets",
        "performance with the parameters of NoPS and with half of them (Figure 'budget constraints')",
        functools.partial(curve_result, columns=4),
        _curves,
    ),
    Target("table-budgets", "parameters of every method under both budgets, counted (four tables)", _table),
)
