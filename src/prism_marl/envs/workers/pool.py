"""Python environments in worker processes: one that crashes or hangs loses its episode and nothing else.

A worker runs several environments, one request at a time; there are at most as many workers as cores. When a worker
dies or hangs, the environment whose answer was awaited has lost its episode. A new process replaces the worker and
replays the other episodes up to where they were. Their states are the same as before, because an episode depends on
its seed and actions alone.
"""

import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_marl.envs.cores import usable_cores
from prism_marl.envs.python.base import outcome
from prism_marl.envs.workers.channel import pack
from prism_marl.envs.workers.process import LOST_IN_A_ROW, TRIES, Answer, EnvLostError, WorkerProcess
from prism_marl.errors import UserError
from prism_marl.scene import Scene, read_scene
from prism_marl.types import EnvSpec, Observation, Step

MOST_WORKERS = 16
STARTING = 120.0  # seconds that a new process may take to start, at least


class Worker:
    """One process and the environments in it; each has a slot, which is its number."""

    def __init__(self, task: str, patience: float):
        self.task, self.patience = task, patience
        self.in_use = self.slots = 0  # environments that are open, and slots given so far
        self._ready = False
        self._process: WorkerProcess | None = None
        self._history: dict[int, list[bytes]] = {}  # by slot: requests of the running episode
        self._pending: deque[int] = deque()  # slots whose requests have no answer yet, in order
        self._answers: dict[int, Answer | EnvLostError] = {}

    def ask(self, slot: int, command: str, value: Any = None, action: np.ndarray | None = None) -> None:
        """Send a request; ``answer`` raises the errors."""
        if command == "reset":
            self._history[slot] = []
            self._answers.pop(slot, None)
        elif isinstance(self._answers.get(slot), EnvLostError):
            return  # lost while the process was replaced because of another environment
        message = pack([slot, command, value], None if action is None else {"action": action})
        if command != "scene":
            self._history[slot].append(message)
        self._pending.append(slot)
        with contextlib.suppress(OSError, EOFError):
            self._open().channel.send(message)

    def answer(self, slot: int) -> Answer:
        """Wait for the answer to this environment's request; raises ``EnvLostError`` if its episode is lost."""
        while slot not in self._answers:
            first = self._pending[0]
            try:
                found = self._receive()
            except EnvLostError as error:
                self._replace(first, error)
            else:
                self._pending.popleft()
                self._answers[first] = found
        answer = self._answers.pop(slot)
        if isinstance(answer, EnvLostError):
            raise answer
        return answer

    def forget(self, slot: int) -> None:
        """The episode has ended and is not replayed any more."""
        self._history.pop(slot, None)

    def kill(self) -> None:
        """Kill the process and all processes that it has started; the next request starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def __del__(self) -> None:
        """For owners that do not close their environments."""
        with contextlib.suppress(Exception):
            self.kill()

    def _replace(self, lost_slot: int, error: EnvLostError) -> None:
        """Start a new process and replay all episodes but the lost one; a replay may lose further episodes."""
        pending, lost = set(self._pending), {lost_slot: error}
        self._pending.clear()
        while lost:
            self.kill()
            for slot, reason in lost.items():
                self._history.pop(slot, None)
                self._answers[slot] = reason
            lost = self._replay(pending)

    def _replay(self, pending: set[int]) -> dict[int, EnvLostError]:
        """Send the requests of all running episodes again. Returns the first episode that is lost by this, if any."""
        for slot, requests in self._history.items():
            for number, request in enumerate(requests, 1):
                try:
                    self._open().channel.send(request)
                    found = self._receive()
                except (OSError, EOFError, EnvLostError) as error:
                    return {slot: EnvLostError(str(error) or "its process died")}
                if slot in pending and number == len(requests):
                    self._answers[slot] = found
        return {}

    def _receive(self) -> Answer:
        try:
            process = self._open()
        except OSError as error:
            raise EnvLostError(f"its process could not be started: {error.strerror}") from None
        if not self._ready:
            process.answer(max(STARTING, self.patience))
            self._ready = True
        return process.answer(self.patience)

    def _open(self) -> WorkerProcess:
        if self._process is None:
            self._process, self._ready = WorkerProcess(f"{__package__}.serve", self.task), False
        return self._process


class RemoteEnv:
    """A ``PythonEnv`` that runs in a worker."""

    def __init__(self, worker: Worker, spec: EnvSpec):
        self.spec, self.dropped, self.lost = spec, 0, False
        self._worker, self._slot = worker, worker.slots
        self._asked = False
        self._in_a_row = 0  # episodes lost since one has ended normally
        self._last: Observation | None = None
        worker.in_use, worker.slots = worker.in_use + 1, worker.slots + 1

    def begin_reset(self, seed: int) -> None:
        """Start a reset without waiting, so that other environments can work too; ``reset`` waits for it."""
        self._asked = True
        self._worker.ask(self._slot, "reset", int(seed))

    def reset(self, seed: int) -> Observation:
        """Start an episode; tries again if the environment is lost."""
        reason: EnvLostError | None = None
        for _ in range(TRIES):
            if not self._asked:
                self.begin_reset(seed)
            try:
                _, arrays = self._answer()
            except EnvLostError as error:
                reason = error
                continue
            self.lost, self._last = False, _observation(arrays)
            return self._last
        raise self._failure(f"could not start an episode in {TRIES} tries", reason)

    def begin_step(self, action: np.ndarray) -> None:
        """Start a step without waiting, so that other environments can work too; ``step`` waits for it."""
        self._asked = True
        self._worker.ask(self._slot, "step", action=np.asarray(action))

    def step(self, action: np.ndarray) -> Step:
        """If the environment is lost, its episode is truncated; ``lost`` says that it must not be counted."""
        if not self._asked:
            self.begin_step(action)
        try:
            _, arrays = self._answer()
        except EnvLostError as error:
            return self._drop(error)
        metrics = {name: float(arrays[f"metric.{name}"]) for name in self.spec.metrics}
        self._last = _observation(arrays)
        ends = {name: bool(arrays[name]) for name in ("terminated", "truncated")}
        if any(ends.values()):
            self._in_a_row = 0
            self._worker.forget(self._slot)
        return outcome(
            self._last, arrays["reward"].item(), metrics=metrics, agent_reward=arrays.get("agent_reward"), **ends
        )

    def scene(self) -> Scene | None:
        """A drawing of the present state; None if the environment is lost or has no drawing."""
        if self.lost:
            return None
        self._worker.ask(self._slot, "scene")
        try:
            found = self._answer()[0]["scene"]
        except EnvLostError:
            return None
        return None if found is None else read_scene(found)

    def close(self) -> None:
        """The last environment of a worker ends its process."""
        self._worker.in_use -= 1
        if self._worker.in_use <= 0:
            self._worker.kill()

    def _answer(self) -> Answer:
        self._asked = False
        content, arrays = self._worker.answer(self._slot)
        if "refused" in content:
            raise UserError(content["refused"], code=content["code"])
        if "failed" in content:
            self._worker.forget(self._slot)
            raise EnvLostError(content["failed"])
        return content, arrays

    def _drop(self, error: EnvLostError) -> Step:
        assert self._last is not None, "a step follows a reset"
        self.dropped, self.lost, self._in_a_row = self.dropped + 1, True, self._in_a_row + 1
        if self._in_a_row >= LOST_IN_A_ROW:
            raise self._failure(f"lost {LOST_IN_A_ROW} episodes in a row", error)
        nothing, each = dict.fromkeys(self.spec.metrics, 0.0), None
        if self.spec.reward == "agent":
            each = np.zeros(self.spec.agents)
        return outcome(self._last, 0.0, terminated=False, truncated=True, metrics=nothing, agent_reward=each)

    def _failure(self, what: str, reason: EnvLostError | None) -> UserError:
        return UserError(
            f"task: '{self.spec.name}' {what} ({reason}); repair it, raise run.patience, or run it in the training "
            "process itself with run.patience 0",
            code=1,
        )


class WorkerPool:
    """Environments of one task, spread over at most as many workers as there are cores."""

    def __init__(self, task: str, spec: EnvSpec, patience: float):
        self._task, self._spec, self._patience = task, spec, patience
        self._workers: list[Worker] = []
        self._limit = min(usable_cores(), MOST_WORKERS)

    def make_env(self) -> RemoteEnv:
        """One more environment: in a new worker, or in the worker with the fewest when there are enough workers."""
        if len(self._workers) < self._limit:
            self._workers.append(Worker(self._task, self._patience))
        return RemoteEnv(min(self._workers, key=lambda worker: worker.in_use), self._spec)


def _observation(arrays: Mapping[str, np.ndarray]) -> Observation:
    parts: Any = {name: arrays[name] for name in Observation._fields}
    return Observation(**parts)
