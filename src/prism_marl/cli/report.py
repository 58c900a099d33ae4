"""``prism-marl report``: makes a page of runs."""

from prism_marl import api
from prism_marl.cli.arguments import Arguments, some_path


def run(argv: list[str]) -> int:
    """Make the page of runs."""
    parser = Arguments(
        "report",
        "Write an HTML page that compares runs: curves, final results, masks, parameters, replays.",
    )
    parser.add_argument("runs", type=some_path, nargs="+", help="run folders, or folders that contain run folders")
    parser.add_argument(
        "--out",
        type=some_path,
        help="a folder for the page and its figures as PNG and PDF, or NAME.html for the page alone "
        "(default: report.html in the first folder)",
    )
    parser.add_argument("--title", help="headline of the page")
    parser.add_modules()
    found = parser.parse_strictly(argv)
    parser.load_modules(found)
    out = found.out or found.runs[0] / "report.html"
    print(api.report(found.runs, out=out, title=found.title))  # noqa: T201
    return 0
