"""Learning runs behind docs/results.md: every method on one task, five seeds, one after the other or side by side.

    python benchmarks/learn.py --methods fups,fups_id,nops,prism --envs 8 --out runs/learn
    python benchmarks/learn.py --out runs/learn --keep docs/rows/NAME                    # also keep the small rows
    python benchmarks/learn.py --draw docs/rows/NAME --picture docs/pictures/NAME.png    # table and figure from rows

Interrupt it when you like: finished runs are skipped and interrupted ones continue. Side by side, each run keeps to its
share of the cores. ``--rows-only`` ends a run as soon as its last row is written: the last checkpoint of a battle holds
10 GiB of replay for five seeds, which a study does not need. Words not known here are for `prism-marl train`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from prism_marl.envs.cores import core_numbers
from prism_marl.errors import UserError
from prism_marl.runs.folder import load_experiment

KEPT = ("config.json", "machine.json", "eval.jsonl", "train.jsonl", "timing.jsonl", "footprint.json")


def command(task: str, method: str, folder: Path, extra: list[str]) -> list[str]:
    return [sys.executable, "-m", "prism_marl.cli", "train", task, "--sharing", method, "--out", str(folder), *extra]


def shares_of(cores: list[int], runs: int, each: int | None) -> list[list[int]]:
    """Cores for each of some runs. Where ``each`` asks for more than there are, neighbours have some in common: a run
    that learns on the accelerator leaves its cores to those that play."""
    if each is None:
        return [cores[place::runs] or cores for place in range(runs)]
    starts = [place * len(cores) // runs for place in range(runs)]
    return [[cores[(start + k) % len(cores)] for k in range(min(each, len(cores)))] for start in starts]


def run_all(
    commands: dict[Path, list[str]],
    side_by_side: int,
    over: Callable[[Path], bool],
    each: int | None,
    begin: Callable[[], bool] = lambda: True,
) -> list[Path]:
    """Start at most so many at once, as long as ``begin`` allows it; ``over`` says which may be ended. The folders of
    those that failed come back, and beside each of them a file with what it said."""
    waiting, running, failed = dict(commands), {}, []
    shares = shares_of(core_numbers(), min(side_by_side, len(commands)), each)
    while running or (waiting and begin()):
        while waiting and shares and begin():
            folder, share = next(iter(waiting)), shares.pop(0)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with said(folder).open("wb") as errors:
                process = subprocess.Popen(waiting.pop(folder), stderr=errors)
            if (side_by_side > 1 or each) and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(process.pid, share)
            running[folder] = (process, time.time(), share)
        for folder, (process, started, share) in list(running.items()):
            if enough := over(folder):
                process.kill()
                process.wait()
            if process.poll() is not None:
                running.pop(folder)
                shares.append(share)
                print(f"{folder.name}: exit {process.returncode} after {time.time() - started:.0f} s", flush=True)
                if process.returncode and not enough:
                    failed.append(folder)
                else:
                    said(folder).unlink()
        time.sleep(0.5)
    return failed


def said(folder: Path) -> Path:
    """Where a run's messages go."""
    return folder.with_name(f"{folder.name}.err")


def all_rows_there(folder: Path) -> bool:
    """Whether the last evaluation is written, with the spectra that come after its rows."""
    try:
        run = load_experiment(folder).run
        rows = (folder / "eval.jsonl").read_bytes().count(b"\n")
        spectra = sorted((folder / "spectra").glob("*")) if (folder / "spectra").exists() else []
    except (OSError, UserError):
        return False
    return rows == run.seeds * run.evaluations and (not spectra or len(spectra) == run.evaluations)


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
    from prism_marl.reports import finals, load

    final = finals.final_of(load.load_evaluations(folder))
    if final is None:
        return f"{folder.name}: no return yet"
    seconds = sum(json.loads(line)["seconds"] for line in (folder / "timing.jsonl").read_text().splitlines())
    values = [round(value, 3) for value in sorted(final.values.tolist())]
    return f"{folder.name}: final returns {values} at step {final.step:,.0f}, {seconds:.0f} s of training"


def draw(rows: Path, picture: Path | None, metrics: list[str], until: float) -> None:
    """The table and the figures of kept rows; nothing in them is typed by hand. The table is read at the last
    evaluation up to a step."""
    from prism_marl.reports import figures, load
    from prism_marl.reports.finals import final_of

    runs = load.load_runs(sorted(path for path in rows.iterdir() if path.is_dir()))
    print(
        f"| method | steps | {' | '.join(f'final {name}, IQM [95% interval]' for name in metrics)} | each seed | ",
        end="",
    )
    print("training s | compile s |\n|---|--:|" + "---|" * (len(metrics) + 1) + "--:|--:|")
    for run in runs:
        finals = [final for name in metrics if (final := final_of(run.evaluations, name, until)) is not None]
        if len(finals) < len(metrics):
            continue
        intervals = [final.interval() for final in finals]
        timing = [json.loads(line) for line in (rows / run.name / "timing.jsonl").read_text().splitlines()]
        cells = [
            run.method,
            f"{finals[0].step:,.0f}",
            *(f"{one.estimate:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in intervals),
            " ".join(f"{value:.3f}" for value in sorted(finals[0].values)),
            f"{sum(row['seconds'] for row in timing):.0f}",
            f"{timing[-1]['compile_seconds']:.0f}",
        ]
        print("| " + " | ".join(cells) + " |")
    if picture:
        for name in metrics:
            stem = picture.with_suffix("") if name == "return" else picture.with_name(f"{picture.stem}-{name}")
            figures.save_figure(figures.learning_curves(runs, name), stem)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="lbf/10x10-3p-3f")
    parser.add_argument("--methods", default="nops,fups,fups_id,fups_id_svd,seps,snp,adaps,kaleidoscope,prism")
    parser.add_argument("--seeds", default="5")
    parser.add_argument("--envs", default="8")
    parser.add_argument("--out", type=Path, default=Path("runs/learn"))
    parser.add_argument("--keep", type=Path, help="copy rows here")
    parser.add_argument("--side-by-side", type=int, default=1, help="processes at once")
    parser.add_argument("--cores", type=int, help="cores for each of them (default: an equal share)")
    parser.add_argument("--rows-only", action="store_true", help="end a run with its last row, without a checkpoint")
    parser.add_argument("--draw", type=Path, help="only draw rows that were kept earlier")
    parser.add_argument("--metrics", default="return", help="with --draw: also battle_won, for example")
    parser.add_argument("--until", type=float, default=float("inf"), help="with --draw: read the table at this step")
    parser.add_argument("--picture", type=Path, help="with --draw: the figure, as PNG and PDF")
    found, extra = parser.parse_known_args()
    if found.cores is not None and found.cores < 1:
        parser.error(f"--cores: {found.cores} is no number of cores; the smallest is 1")
    if found.draw:
        draw(found.draw, found.picture, found.metrics.split(","), found.until)
        return 0
    folders = {method: found.out / method for method in found.methods.split(",")}
    shared = ["--seeds", found.seeds, "--envs", found.envs, *extra]
    commands = {folder: command(found.task, method, folder, shared) for method, folder in folders.items()}
    over = all_rows_there if found.rows_only else (lambda folder: False)
    failed = run_all(commands, found.side_by_side, over, found.cores)
    for method, folder in folders.items():
        if (folder / "eval.jsonl").exists():
            print(summary(folder), flush=True)
            if found.keep:
                keep(folder, found.keep / method)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
