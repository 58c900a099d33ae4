"""Learning runs behind docs/results.md: every method on one task, five seeds, one after the other or side by side.

    python benchmarks/learn.py --methods fups,fups_id,nops,prism --envs 8 --out runs/learn
    python benchmarks/learn.py --out runs/learn --keep docs/rows/NAME                    # also keep the small rows
    python benchmarks/learn.py --draw docs/rows/NAME --picture docs/pictures/NAME.png    # table and figure from rows

Interrupt it when you like: finished runs are skipped and interrupted ones continue.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

KEPT = ("config.json", "machine.json", "eval.jsonl", "train.jsonl", "timing.jsonl", "footprint.json")


def command(task: str, method: str, folder: Path, extra: list[str]) -> list[str]:
    return [sys.executable, "-m", "prism_marl.cli", "train", task, "--sharing", method, "--out", str(folder), *extra]


def run_all(commands: dict[str, list[str]], side_by_side: int) -> list[str]:
    """Start at most so many at once; the names of those that failed come back."""
    waiting, running, failed = dict(commands), {}, []
    while waiting or running:
        while waiting and len(running) < side_by_side:
            name = next(iter(waiting))
            running[name] = (subprocess.Popen(waiting.pop(name), stderr=subprocess.DEVNULL), time.time())
        for name, (process, started) in list(running.items()):
            if process.poll() is not None:
                running.pop(name)
                print(f"{name}: exit {process.returncode} after {time.time() - started:.0f} s", flush=True)
                if process.returncode:
                    failed.append(name)
        time.sleep(0.5)
    return failed


def keep(folder: Path, target: Path) -> None:
    """The rows without checkpoints, and the spectra as one archive."""
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (folder / name).exists():
            shutil.copy(folder / name, target / name)
    if (folder / "spectra").exists():
        with tarfile.open(target / "spectra.tar.gz", "w:gz") as archive:
            archive.add(folder / "spectra", arcname="spectra")


def summary(folder: Path) -> str:
    rows = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
    last = max(row["evaluation"] for row in rows)
    finals = sorted(row["return"] for row in rows if row["evaluation"] == last)
    seconds = sum(json.loads(line)["seconds"] for line in (folder / "timing.jsonl").read_text().splitlines())
    return f"{folder.name}: final returns {[round(value, 3) for value in finals]}, {seconds:.0f} s of training"


def draw(rows: Path, picture: Path | None) -> None:
    """The table and the figure of kept rows; nothing in them is typed by hand."""
    from prism_marl import plots, results, stats

    runs = results.load_runs(sorted(path for path in rows.iterdir() if path.is_dir()))
    print("| method | steps | final return, IQM [95% interval] | each seed | training s | compile s |")
    print("|---|--:|---|---|--:|--:|")
    for run in runs:
        curves = results.on_common_grid(run.evaluations, "return")
        if curves is None:
            continue
        final = curves.values[:, -1]
        interval = stats.bootstrap_interval([final], seed=0, resamples=stats.POINT_RESAMPLES)
        timing = [json.loads(line) for line in (rows / run.name / "timing.jsonl").read_text().splitlines()]
        cells = [
            run.method,
            f"{curves.steps[-1]:,.0f}",
            f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]",
            " ".join(f"{value:.3f}" for value in sorted(final)),
            f"{sum(row['seconds'] for row in timing):.0f}",
            f"{timing[-1]['compile_seconds']:.0f}",
        ]
        print("| " + " | ".join(cells) + " |")
    if picture:
        plots.save_figure(plots.learning_curves(runs), picture.with_suffix(""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="lbf/10x10-3p-3f")
    parser.add_argument("--methods", default="nops,fups,fups_id,fups_id_svd,seps,snp,adaps,kaleidoscope,prism")
    parser.add_argument("--seeds", default="5")
    parser.add_argument("--envs", default="8")
    parser.add_argument("--out", type=Path, default=Path("runs/learn"))
    parser.add_argument("--keep", type=Path, help="copy rows here")
    parser.add_argument("--side-by-side", type=int, default=1, help="processes at once")
    parser.add_argument("--draw", type=Path, help="only draw rows that were kept earlier")
    parser.add_argument("--picture", type=Path, help="with --draw: the figure, as PNG and PDF")
    found, extra = parser.parse_known_args()
    if found.draw:
        draw(found.draw, found.picture)
        return 0
    folders = {method: found.out / method for method in found.methods.split(",")}
    shared = ["--seeds", found.seeds, "--envs", found.envs, *extra]
    commands = {method: command(found.task, method, folder, shared) for method, folder in folders.items()}
    failed = run_all(commands, found.side_by_side)
    for method, folder in folders.items():
        if (folder / "eval.jsonl").exists():
            print(summary(folder), flush=True)
            if found.keep:
                keep(folder, found.keep / method)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
