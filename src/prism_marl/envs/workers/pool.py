"""Python environments in processes of their own: one that dies or hangs costs its episode and nothing else.

A room is a process that plays several environments, one after the other; there are as many rooms as cores. When a room
is lost, the environment that was being waited for is the culprit. A new room is opened, and the episodes of the others
are played again to where they were: an episode depends on its seed and actions alone, so the state is the same.
"""

import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_marl.envs.cores import usable_cores
from prism_marl.envs.python.base import outcome
from prism_marl.envs.workers.channel import pack
from prism_marl.envs.workers.process import LOST_IN_A_ROW, TRIES, Answer, Child, GameLostError
from prism_marl.errors import UserError
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step

MOST_ROOMS = 16
STARTING = 120.0  # seconds until a new process must be ready, at least


class Worker:
    """One process and the environments in it, by number."""

    def __init__(self, task: str, patience: float):
        self.task, self.patience = task, patience
        self.users = self.places = 0  # seats in use, and seats ever given
        self._ready = False
        self._child: Child | None = None
        self._played: dict[int, list[bytes]] = {}  # questions of episodes that still run
        self._waiting: deque[int] = deque()  # who has asked, in order
        self._answers: dict[int, Answer | GameLostError] = {}

    def ask(self, place: int, verb: str, value: Any = None, action: np.ndarray | None = None) -> None:
        """Put a question; whatever breaks is found when the answer is read."""
        if verb == "reset":
            self._played[place] = []
            self._answers.pop(place, None)
        elif isinstance(self._answers.get(place), GameLostError):
            return  # lost while another one's room was replaced
        message = pack([place, verb, value], None if action is None else {"action": action})
        if verb != "scene":
            self._played[place].append(message)
        self._waiting.append(place)
        with contextlib.suppress(OSError, EOFError):
            self._open().channel.send(message)

    def answer(self, place: int) -> Answer:
        """Wait for the answer to this one's question; ``GameLostError`` where there is none."""
        while place not in self._answers:
            first = self._waiting[0]
            try:
                found = self._receive()
            except GameLostError as error:
                self._replace(first, error)
            else:
                self._waiting.popleft()
                self._answers[first] = found
        answer = self._answers.pop(place)
        if isinstance(answer, GameLostError):
            raise answer
        return answer

    def forget(self, place: int) -> None:
        """The episode is over and need not be played again."""
        self._played.pop(place, None)

    def end(self) -> None:
        """End the process, and all that it has started; the next question starts another."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def __del__(self) -> None:
        """Nobody can ask any more, though nobody has said so."""
        with contextlib.suppress(Exception):
            self.end()

    def _replace(self, culprit: int, error: GameLostError) -> None:
        waiting, lost = set(self._waiting), {culprit: error}
        self._waiting.clear()
        while lost:
            self.end()
            for place, reason in lost.items():
                self._played.pop(place, None)
                self._answers[place] = reason
            lost = self._play_again(waiting)

    def _play_again(self, waiting: set[int]) -> dict[int, GameLostError]:
        """All episodes that still run, question by question; who is lost on the way is returned."""
        for place, questions in self._played.items():
            for number, question in enumerate(questions, 1):
                try:
                    self._open().channel.send(question)
                    found = self._receive()
                except (OSError, EOFError, GameLostError) as error:
                    return {place: GameLostError(str(error) or "its process died")}
                if place in waiting and number == len(questions):
                    self._answers[place] = found
        return {}

    def _receive(self) -> Answer:
        try:
            child = self._open()
        except OSError as error:
            raise GameLostError(f"its process could not be started: {error.strerror}") from None
        if not self._ready:
            child.answer(max(STARTING, self.patience))
            self._ready = True
        return child.answer(self.patience)

    def _open(self) -> Child:
        if self._child is None:
            self._child, self._ready = Child(f"{__package__}.player", self.task), False
        return self._child


class RemoteEnv:
    """One environment in a room: a ``PythonEnv`` like any other."""

    def __init__(self, room: Worker, spec: EnvSpec):
        self.spec, self.dropped, self.lost = spec, 0, False
        self._room, self._place = room, room.places
        self._asked = False
        self._in_a_row = 0
        self._last: Observation | None = None
        room.users, room.places = room.users + 1, room.places + 1

    def begin_reset(self, seed: int) -> None:
        """Let the game start an episode while others do the same; ``reset`` waits for it."""
        self._asked = True
        self._room.ask(self._place, "reset", int(seed))

    def reset(self, seed: int) -> Observation:
        """Start an episode; a game that is lost at once is tried again."""
        reason: GameLostError | None = None
        for _ in range(TRIES):
            if not self._asked:
                self.begin_reset(seed)
            try:
                _, arrays = self._answer()
            except GameLostError as error:
                reason = error
                continue
            self.lost, self._last = False, _observation(arrays)
            return self._last
        raise self._given_up(f"could not start an episode in {TRIES} tries", reason)

    def begin_step(self, action: np.ndarray) -> None:
        """Let the game play while others do the same; ``step`` waits for it."""
        self._asked = True
        self._room.ask(self._place, "step", action=np.asarray(action))

    def step(self, action: np.ndarray) -> Step:
        """A lost game ends its episode as the clock would; ``lost`` says that it is not to be counted."""
        if not self._asked:
            self.begin_step(action)
        try:
            _, arrays = self._answer()
        except GameLostError as error:
            return self._drop(error)
        metrics = {name: float(arrays[f"metric.{name}"]) for name in self.spec.metrics}
        self._last = _observation(arrays)
        ends = {name: bool(arrays[name]) for name in ("terminated", "truncated")}
        if any(ends.values()):
            self._in_a_row = 0
            self._room.forget(self._place)
        return outcome(self._last, arrays["reward"].item(), metrics=metrics, **ends)

    def scene(self) -> Scene | None:
        """A drawing of the present state; a lost game has none."""
        if self.lost:
            return None
        self._room.ask(self._place, "scene")
        try:
            found = self._answer()[0]["scene"]
        except GameLostError:
            return None
        from prism_marl.scene import read_scene  # which itself knows about environments

        return None if found is None else read_scene(found)

    def close(self) -> None:
        """The last one closes the room."""
        self._room.users -= 1
        if self._room.users <= 0:
            self._room.end()

    def _answer(self) -> Answer:
        self._asked = False
        words, arrays = self._room.answer(self._place)
        if "refused" in words:
            raise UserError(words["refused"], code=words["code"])
        if "failed" in words:
            self._room.forget(self._place)
            raise GameLostError(words["failed"])
        return words, arrays

    def _drop(self, error: GameLostError) -> Step:
        assert self._last is not None, "a step follows a reset"
        self.dropped, self.lost, self._in_a_row = self.dropped + 1, True, self._in_a_row + 1
        if self._in_a_row >= LOST_IN_A_ROW:
            raise self._given_up(f"lost {LOST_IN_A_ROW} episodes in a row", error)
        return outcome(self._last, 0.0, terminated=False, truncated=True, metrics=dict.fromkeys(self.spec.metrics, 0.0))

    def _given_up(self, what: str, reason: GameLostError | None) -> UserError:
        return UserError(
            f"task: '{self.spec.name}' {what} ({reason}); repair it, raise run.patience, or play it in the training "
            "process itself with run.patience 0",
            code=1,
        )


class WorkerPool:
    """Seats for one task, spread over as many processes as there are cores."""

    def __init__(self, task: str, spec: EnvSpec, patience: float):
        self._task, self._spec, self._patience = task, spec, patience
        self._rooms: list[Worker] = []
        self._limit = min(usable_cores(), MOST_ROOMS)

    def seat(self) -> RemoteEnv:
        """One more environment, where the fewest are."""
        if len(self._rooms) < self._limit:
            self._rooms.append(Worker(self._task, self._patience))
        return RemoteEnv(min(self._rooms, key=lambda room: room.users), self._spec)


def _observation(arrays: Mapping[str, np.ndarray]) -> Observation:
    parts: Any = {name: arrays[name] for name in Observation._fields}
    return Observation(**parts)
