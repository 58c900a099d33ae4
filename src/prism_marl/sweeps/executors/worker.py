"""The process that ``local`` starts for one experiment: a job comes on standard input, its error goes to output."""

import json
import os
import signal
import sys
import threading

from prism_marl.sweeps.executors.base import do_job


def main() -> int:
    """Returns 0 when the result was told, 130 when the run was stopped and has saved."""
    told = json.loads(_line())
    result = os.fdopen(os.dup(1), "w")  # what environments print goes to the log and never mixes with the result
    os.dup2(2, 1)
    if told["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, told["cores"])
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()
    try:
        error = do_job(told["job"])
    except KeyboardInterrupt:
        return 130
    with result:
        result.write(json.dumps({"error": error}))
    return 0


def _line() -> bytes:
    """Read without a buffer, so that the thread below can go on where this ends."""
    found = bytearray()
    while not found.endswith(b"\n"):
        part = os.read(0, 65536)
        if not part:
            raise SystemExit("the sweep has gone")
        found += part
    return bytes(found)


def _end_with_the_sweep() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # the runner saves and stops


if __name__ == "__main__":
    sys.exit(main())
