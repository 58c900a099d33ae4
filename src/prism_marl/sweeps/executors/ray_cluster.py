"""Experiments as tasks of a Ray cluster: an existing one, or one on this machine that ends with the sweep.

Runs folder and user files must be on a file system that all machines share. A task whose worker dies (killed, machine
lost, out of memory) is started again elsewhere and continues from its last checkpoint; the dead worker's lock on the
folder no longer exists.
"""

import math
import os
import time
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from prism_marl.errors import UserError, install_command
from prism_marl.runs.progress import read_progress
from prism_marl.sweeps.executors.base import Event, Job, do_job, one_line

RETRIES = 3  # of a task whose worker died; an experiment that ends with an error is not tried again
POLL_SECONDS = 0.5
SAVING_SECONDS = 120  # how long workers may take to save when a sweep is stopped
STORE = 100 * 2**20  # bytes of the object store of a cluster that we start; only short texts are sent


@dataclass(frozen=True)
class Ray:
    """The executor ``ray``."""

    address: str | None = None  # of a running cluster, ``auto`` for the one on this machine; None: start one
    cpus: int = 1  # cores of one experiment
    gpus: float | None = None  # GPUs of one experiment; None: 1 if the cluster has any

    def __post_init__(self) -> None:
        if self.address:  # else Ray, which reads this when imported, tries twenty times and waits 40 s each time
            os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
        _ray()
        for name, number, least in (("cpus", self.cpus, 1), ("gpus", self.gpus or 0, 0)):
            if not least <= number < math.inf:
                raise UserError(f"--{name}: {number:g} is not possible; the nearest valid value is {least}")

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """See ``Executor``."""
        if not jobs:
            return
        ray = _ray()
        _connect(ray, self.address)
        try:
            yield from self._run(ray, jobs)
        finally:
            ray.shutdown()

    def _run(self, ray: Any, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        task = ray.remote(max_calls=1, max_retries=RETRIES, **self._resources(ray))(do_job)
        begun = time.time()
        waiting = {task.remote(job.to_json()): job for job in jobs}
        running: set[Any] = set()
        try:
            while waiting:
                ended, _ = ray.wait(list(waiting), timeout=POLL_SECONDS)
                for ref in [ref for ref in waiting if ref not in running and _has_begun(waiting[ref], begun)]:
                    running.add(ref)
                    yield Event(waiting[ref], "running")
                for ref in ended:
                    yield _ended(ray, ref, waiting.pop(ref))
        finally:
            _stop(ray, list(waiting))

    def _resources(self, ray: Any) -> dict[str, float]:
        present = ray.cluster_resources()
        wanted = {"CPU": self.cpus, "GPU": min(1, present.get("GPU", 0)) if self.gpus is None else self.gpus}
        for name, number in wanted.items():
            if self.address is None and number > present.get(name, 0):  # other clusters may still grow
                raise UserError(f"--{name.lower()}s: this machine has {present.get(name, 0):g}, not {number:g}")
        return {"num_cpus": wanted["CPU"], "num_gpus": wanted["GPU"]}


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that we start sends no statistics
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise UserError(f"executor: Ray is not installed: {install_command(extra='ray')}") from None
    return ray


def _connect(ray: Any, address: str | None) -> None:
    quiet = {"include_dashboard": False, "object_store_memory": STORE} if address is None else {}
    try:
        with warnings.catch_warnings():
            # JAX warns of forks when it is in use. They are safe here: Ray's forks start another program at once.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(address=address or "local", log_to_driver=False, logging_level="error", **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        where = f"no Ray cluster at '{address}'" if address else "a Ray cluster could not be started"
        raise UserError(f"--address: {where} ({one_line(str(error))[:200]})", code=1) from None


def _has_begun(job: Job, since: float) -> bool:
    progress = read_progress(job.folder)
    return progress is not None and progress.time >= since


def _ended(ray: Any, ref: Any, job: Job) -> Event:
    try:
        error = ray.get(ref)
    except ray.exceptions.RayError as problem:
        lines = str(problem).strip().splitlines() or [""]
        error = f"{type(problem).__name__}: {lines[-1]}"
    return Event(job, "failed" if error else "finished", one_line(error))


def _stop(ray: Any, refs: list[Any]) -> None:
    """Ask running tasks to save and end, and cancel the others."""
    for ref in refs:
        ray.cancel(ref)
    if refs:
        ray.wait(refs, num_returns=len(refs), timeout=SAVING_SECONDS)
