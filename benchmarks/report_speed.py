"""How long a page of many experiments takes: reading, statistics, figures, and drawing it in a browser.

    python benchmarks/report_speed.py                       # 400 experiments of 5 seeds and 100 evaluations, made up
    python benchmarks/report_speed.py --runs 40 --keep DIR  # fewer; keep the folders and the page

Seconds are those of this process's own computing and of the clock; the browser's are of the clock.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import Browser, find_browser  # pyright: ignore[reportMissingImports]
from prism_marl.reports.page import write_page
from synthetic import FOOTPRINT, make_run  # pyright: ignore[reportMissingImports]


def make_study(folder: Path, runs: int, evaluations: int) -> None:
    """Eight methods, ten tasks, and as many settings of each as it takes."""
    for index in range(runs):
        method, task = FOOTPRINT[index % 8][0], f"lbf/task-{index // 8 % 10}"
        make_run(folder, method=method, task=task, evaluations=evaluations, seed=index)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a page of many experiments.")
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="folder for the experiments and the page")
    found = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = found.keep or Path(scratch)
        if not (home / "runs").exists():
            make_study(home / "runs", found.runs, found.evaluations)
        own, clock = time.process_time(), time.perf_counter()
        page = write_page([home / "runs"], home / "page")
        own, clock = time.process_time() - own, time.perf_counter() - clock
        size, figures = page.stat().st_size / 1e6, len(list((home / "page" / "figures").iterdir()))
        print(f"{found.runs} experiments: {own:.1f} s computing, {clock:.1f} s by the clock")
        print(f"page of {size:.1f} MB, {figures} figure files")
        program = find_browser()
        if program:
            with Browser(program) as browser:
                clock = time.perf_counter()
                browser.open(page)
                print(f"{time.perf_counter() - clock:.1f} s until the browser has drawn it")


if __name__ == "__main__":
    main()
