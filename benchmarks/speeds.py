"""Record how fast finished runs were, so that `prism-marl reproduce --plan` can say how long others will take.

    python benchmarks/speeds.py runs/reproduce --note "other programs running"      # run folders, at any depth
    python benchmarks/speeds.py docs/rows/speed/h200-train-898e2e6.jsonl            # rows of benchmarks/train_speed.py
    python benchmarks/speeds.py docs/rows/speed/h200-matd3.jsonl                    # loops of benchmarks/matd3_speed.py

A record with the same task, method, sizes and machine is replaced.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from prism_marl.experiment.presets import preset
from prism_marl.paper import speeds
from prism_marl.paper.speeds import Speed
from prism_marl.sweeps.grid import is_finished

RECORD = Path(speeds.__file__).with_name("speeds.json")


def of_row(row: dict[str, Any], note: str) -> Speed:
    """A row of ``train_speed.py`` or ``matd3_speed.py``, which measure the preset of a task."""
    experiment, machine = preset(row["task"], row["method"]), row["machine"]
    learner: Any = experiment.learner
    return Speed(
        task=row["task"],
        method=row["method"],
        seeds=row["seeds"],
        envs=row.get("envs", experiment.run.envs),
        width=experiment.network.width,
        batch=learner.batch,
        platform=machine["platform"],
        device=machine["device"],
        cores=machine["cores"],
        steps_per_second=row["steps_per_second"],
        compile_seconds=row["compile_seconds"] if "compile_seconds" in row else row["compile_s"],
        rest_seconds=None,
        date=machine["started"][:10],
        note=note,
    )


def in_sequence(row: dict[str, Any]) -> bool:
    """Whether a row is the whole loop of MATD3 as the preset has it."""
    return row.get("part") == "loop" and not row["overlap"]


def read(path: Path, note: str) -> list[Speed]:
    if path.is_file():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [of_row(row, note) for row in rows if row.get("table") == "train" or in_sequence(row)]
    folders = sorted(file.parent for file in path.rglob("timing.jsonl"))
    folders = [
        folder for folder in folders if is_finished(folder) or not (folder / "checkpoints").exists()
    ]  # or copied
    return [speed for folder in folders for speed in [speeds.measured(folder, note)] if speed]


def key(speed: Speed) -> tuple[Any, ...]:
    sizes = (speed.seeds, speed.envs, speed.width, speed.batch)
    return (speed.platform, speed.device, speed.task, speed.method, *sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--note", default="", help="what else the machine was doing")
    found = parser.parse_args()
    table = {key(speed): speed for speed in speeds.recorded()}
    table |= {key(speed): speed for source in found.sources for speed in read(source, found.note)}
    RECORD.write_text(speeds.as_json([table[place] for place in sorted(table)]))
    print(f"{len(table)} speeds in {RECORD}")


if __name__ == "__main__":
    main()
