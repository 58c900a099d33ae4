"""``prism-marl report``."""

from pathlib import Path

from prism_marl.commands.arguments import Arguments
from prism_marl.report import write_report
from prism_marl.results import find_runs


def run(argv: list[str]) -> int:
    """Make the page of runs."""
    parser = Arguments("report", "One self-contained page with curves, spectra, footprint and replays.")
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders that hold them")
    parser.add_argument("--out", type=Path, help="the page (default: report.html in the first folder)")
    parser.add_argument("--title", help="headline of the page")
    found = parser.parse_strictly(argv)
    runs = [run for folder in found.runs for run in find_runs(folder)]
    page = write_report(runs, found.out or found.runs[0] / "report.html", found.title)
    print(page)  # noqa: T201
    return 0
