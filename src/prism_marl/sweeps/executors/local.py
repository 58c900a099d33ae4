"""Experiments as processes of this machine: one for each GPU, or one for each group of cores.

A worker reads its job and its cores from its standard input, which stays open. When it closes, because the sweep was
stopped or has died, the worker saves a checkpoint and ends. So no worker outlives its sweep.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import IO

from prism_marl.envs.cores import core_numbers
from prism_marl.errors import UserError, storage_error
from prism_marl.runs.machine import visible_gpus
from prism_marl.sweeps.executors.base import LOG, Event, Job, one_line

WORKER = [sys.executable, "-m", "prism_marl.sweeps.executors.worker"]
CORES_EACH = 2  # programs of the paper's size gain little from more
MEMORY = 0.9  # of a GPU, for all its workers together


@dataclass(frozen=True)
class Slot:
    """A worker's share of the machine."""

    cores: tuple[int, ...] = ()  # empty: all
    environment: tuple[tuple[str, str], ...] = ()  # variables of the process


@dataclass
class Worker:
    """A running process."""

    job: Job
    slot: Slot
    process: "subprocess.Popen[str]"

    def stop(self) -> None:
        """Ask the process to save and end."""
        with contextlib.suppress(OSError):  # it has ended already
            _pipe(self.process.stdin).close()

    def wait(self) -> tuple[str, int]:
        """Wait for the process; returns its result and its exit code."""
        with _pipe(self.process.stdout) as output:
            result = output.read()
        code = self.process.wait()
        self.stop()
        return result, code


@dataclass(frozen=True)
class Local:
    """The executor ``local``."""

    jobs: int | None = None  # experiments at the same time; None: one for each GPU or each pair of cores

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"--jobs: {self.jobs} is not possible; the nearest valid value is 1")

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """See ``Executor``."""
        waiting, free, running = list(jobs), slots(self.jobs, len(jobs)), []
        try:
            while waiting or running:
                while waiting and free:
                    job = waiting.pop(0)
                    try:
                        running.append(_start(job, free[0]))
                    except OSError as error:  # its folder was taken away while it waited, or the machine is out of room
                        yield Event(job, "failed", one_line(str(storage_error(error, "start the sweep again"))))
                        continue
                    free.pop(0)
                    yield Event(job, "running")
                for worker in _wait(running):
                    running.remove(worker)
                    free.append(worker.slot)
                    yield _ended(worker)
        finally:
            _stop(running)


def slots(number: int | None, wanted: int) -> list[Slot]:
    """Divide the machine between at most ``number`` workers for ``wanted`` jobs."""
    gpus, cores = visible_gpus(), core_numbers()
    number = min(number or len(gpus) or max(1, len(cores) // CORES_EACH), max(wanted, 1))
    # Physics starts as many threads or processes as it has cores, so cores are divided even if there are GPUs.
    shares = [tuple(cores[i * len(cores) // number : (i + 1) * len(cores) // number]) for i in range(number)]
    if number > len(cores):
        shares = [()] * number
    if not gpus:
        return [Slot(share) for share in shares]
    per_gpu = -(-number // len(gpus))
    memory = (("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{MEMORY / per_gpu:.3f}"),) if per_gpu > 1 else ()
    variables = [(("CUDA_VISIBLE_DEVICES", gpus[i % len(gpus)]), *memory) for i in range(number)]
    return [Slot(*parts) for parts in zip(shares, variables, strict=True)]


def _start(job: Job, slot: Slot) -> Worker:
    with (job.folder / LOG).open("a", encoding="utf-8") as log:
        process = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | dict(slot.environment),
            start_new_session=True,  # Ctrl-C reaches only this process, which stops each worker once
        )
    with contextlib.suppress(OSError):  # the exit code reports a worker that dies at once
        stdin = _pipe(process.stdin)
        stdin.write(json.dumps({"cores": slot.cores, "job": job.to_json()}) + "\n")
        stdin.flush()
    return Worker(job, slot, process)


def _wait(running: list[Worker]) -> list[Worker]:
    """Wait until a worker ends, which closes its standard output; returns the workers that have ended."""
    outputs = {_pipe(worker.process.stdout): worker for worker in running}
    ready, _, _ = select.select(outputs, [], [])
    return [outputs[output] for output in ready]


def _ended(worker: Worker) -> Event:
    (result, code), log = worker.wait(), worker.job.folder / LOG
    with contextlib.suppress(OSError):
        if not log.stat().st_size:
            log.unlink()
    if code == 0:
        try:
            error = json.loads(result)["error"]
        except (ValueError, KeyError, TypeError):
            error = "the worker ended without a result"
        return Event(worker.job, "failed" if error else "finished", one_line(error))
    cause = f"was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with code {code}"
    return Event(worker.job, "failed", f"the worker {cause}; see {log}")


def _stop(running: list[Worker]) -> None:
    """Stop all workers, which save a checkpoint; a second Ctrl-C kills them without saving."""
    for worker in running:
        worker.stop()
    try:
        for worker in running:
            worker.wait()
    except KeyboardInterrupt:
        for worker in running:
            worker.process.kill()
        raise


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
