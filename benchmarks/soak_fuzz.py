"""Thousands of hostile inputs for everything that reads a file; see ``tests/corpus.py``.

    python benchmarks/soak_fuzz.py [--inputs 10000] [--seed N] [--out runs/fuzz.json]

Inputs go through processes of some hundreds each, so that one that is killed or grows is noticed. Every input has
20 seconds and 1 GiB. A fault is printed with its seed, which makes the same input again. Exit code 1 if there is any.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

BATCH = 500
PATIENCE = 3600  # seconds for a process


def batch(seed: str, first: int, number: int) -> int:
    """In a process of its own: so many inputs, of all readers in turn. Prints the faults and the largest size."""
    import resource

    from corpus import READERS, attack  # pyright: ignore[reportMissingImports]

    faults, slowest = [], 0.0
    for index in range(first, first + number):
        reader = READERS[index % len(READERS)]
        with tempfile.TemporaryDirectory(prefix="prism-marl-fuzz-") as place:
            outcome = attack(reader, f"{seed}-{index}", Path(place))
        slowest = max(slowest, outcome.seconds)
        if outcome.fault:
            faults.append({"reader": reader.name, "seed": f"{seed}-{index}", "fault": outcome.fault})
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"faults": faults, "slowest": slowest, "largest_mb": largest}))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(2**32)))
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz.json"))
    parser.add_argument("--batch", type=int, nargs=2, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch:
        return batch(options.seed, *options.batch)
    begun, faults, slowest, largest = time.monotonic(), [], 0.0, 0.0
    for first in range(0, options.inputs, BATCH):
        number = min(BATCH, options.inputs - first)
        command = [sys.executable, "-P", __file__, "--seed", options.seed, "--batch", str(first), str(number)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            faults.append(
                {"inputs": [first, number], "fault": f"ended with {done.returncode}", "said": done.stderr[-800:]}
            )
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        faults += found["faults"]
        slowest, largest = max(slowest, found["slowest"]), max(largest, found["largest_mb"])
        print(f"{first + number} inputs, {len(faults)} faults", flush=True)
    summary = {
        "inputs": options.inputs,
        "seed": options.seed,
        "faults": len(faults),
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "slowest_seconds": round(slowest, 1),
        "largest_process_mb": round(largest),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(summary | {"found": faults}, indent=1) + "\n")
    for fault, count in Counter(f"{one.get('reader')}: {one['fault']}" for one in faults).most_common(20):
        print(f"{count} x {fault}")
    print(json.dumps(summary))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
