"""The process that ``local`` starts for one experiment: it reads a job from standard input and writes its error to
standard output."""

import json
import os
import signal
import sys
import threading

from prism_marl.sweeps.executors.base import do_job
from prism_marl.training.compiling import exit_if_compiling


def main() -> int:
    """Returns 0 when the result was written, 130 when the run was stopped and has saved."""
    order = json.loads(_line())
    result = os.fdopen(os.dup(1), "w")  # so that the output of environments goes to the log, not into the result
    os.dup2(2, 1)
    if order["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, order["cores"])
    threading.Thread(target=_stop_with_sweep, daemon=True).start()
    try:
        error = do_job(order["job"])
    except KeyboardInterrupt:
        exit_if_compiling(130)
        return 130
    with result:
        result.write(json.dumps({"error": error}))
    return 0


def _line() -> bytes:
    """The first line, read without a buffer, so that the thread below can read the rest."""
    found = bytearray()
    while not found.endswith(b"\n"):
        part = os.read(0, 65536)
        if not part:
            raise SystemExit("the sweep has ended")
        found += part
    return bytes(found)


def _stop_with_sweep() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # the runner saves and stops


if __name__ == "__main__":
    sys.exit(main())
