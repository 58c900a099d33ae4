"""The agent-scaling study: shared and private parameters of teams of 2 to 1024 agents."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator, StrMethodFormatter

from prism_marl.errors import UserError
from prism_marl.experiment.presets import method_settings
from prism_marl.paper.budgets import SCALING_TASK, SCALING_WIDTH, count, published, scaling_cells
from prism_marl.paper.numbers import cell_rows
from prism_marl.paper.panels import short_number
from prism_marl.paper.target import Gathered, Result, Target
from prism_marl.reports.figures import STYLE, method_style
from prism_marl.storage.files import replacing

AGENTS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
STUDIED = ("kaleidoscope", "nops", "snp", "fups_id", "prism")  # later ones are on top
MARKS = {  # if two lines coincide, the upper one is dashed
    "kaleidoscope": ("s", "-"),
    "nops": ("X", (0, (2, 2))),
    "snp": ("^", "-"),
    "fups_id": ("D", (0, (2, 2))),
    "prism": ("o", "-"),
}


@dataclass(frozen=True)
class Point:
    """One method at one number of agents."""

    method: str
    agents: int
    shared: int
    private: int
    ratio: float


def scaling_study() -> list[Point]:
    """The counts of every method and every number of agents; needs no memory for the networks."""
    points = []
    for method in STUDIED:
        for agents in AGENTS:
            task = SCALING_TASK.format(agents=agents)
            size = count(task, method_settings(task, method), SCALING_WIDTH)
            points.append(Point(method, agents, size.shared, size.private, size.ratio))
    return points


def scaling_figure(points: Sequence[Point]) -> Figure:
    """Shared parameters and overhead against the number of agents, both logarithmic."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.4, 3.4), layout="constrained")
        shared, private = figure.subplots(1, 2)
        _plot(shared, points, lambda point: point.shared, "NoPS shares nothing")
        _plot(private, points, lambda point: point.private, "FuPS+ID adds nothing")
        shared.set(title="Shared by all agents", ylabel="parameters")
        shared.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        private.set(title="Overhead: owned by single agents", ylabel="parameters and mask entries")
        handles = {line.get_label(): line for axis in (shared, private) for line in axis.get_lines()}
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=len(STUDIED))
    return figure


def _plot(axis: Axes, points: Sequence[Point], value: Callable[[Point], int], remark: str) -> None:
    for layer, method in enumerate(STUDIED):
        counted = [(point.agents, value(point)) for point in points if point.method == method and value(point) > 0]
        if not counted:  # a logarithmic axis has no zero: the remark says so instead
            continue
        style, (marker, dashes) = method_style(method), MARKS[method]
        axis.plot(
            *zip(*counted, strict=True),
            color=style.light,
            label=style.label,
            linestyle=dashes,
            marker=marker,
            markersize=6.5 if marker == "X" else 5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            zorder=3 + layer,
        )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set(xlabel="agents")
    axis.xaxis.set_major_locator(FixedLocator(AGENTS[::3]))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
    axis.yaxis.set_major_formatter(FuncFormatter(short_number))
    for side in (axis.xaxis, axis.yaxis):
        side.set_minor_locator(NullLocator())
    axis.text(0.03, 0.92, remark, transform=axis.transAxes, va="top", fontsize=8, color="#555a63")


def write_figure(figure: Figure, path: Path) -> None:
    """Write a PNG or PDF, by the ending of the path; the same data gives the same bytes."""
    try:
        with rc_context(STYLE), replacing(path) as temporary:
            if path.suffix.lower() == ".pdf":
                FigureCanvasPdf(figure)
                about = {"CreationDate": None, "Producer": None, "Creator": None}
                figure.savefig(temporary, format="pdf", metadata=about)
            else:
                FigureCanvasAgg(figure)
                figure.savefig(temporary, format="png", dpi=220, metadata={"Software": None})
    except OSError as error:
        raise UserError(f"--plot: '{path}' cannot be written ({error.strerror}); choose a folder you own") from None


def _count_study(gathered: Gathered) -> Result:
    points = scaling_study()
    return Result(scaling_figure(points), {"Counted": [asdict(point) for point in points]})


def _count_table(gathered: Gathered) -> Result:
    return Result(tables={"Overhead / (parameters + overhead)": cell_rows(scaling_cells(published()), "agents")})


TARGETS = (
    Target("fig-scaling", "parameters and overhead of 2 to 1024 agents, counted (Figure 'agents', top)", _count_study),
    Target("table-scaling", "normalised overhead of 2 to 1024 agents, counted (Figure 'agents', bottom)", _count_table),
)
