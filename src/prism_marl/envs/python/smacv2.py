"""The real SMACv2, for those who have StarCraft II: ``smacv2/<race>_<n>_vs_<m>``, each game in a process of its own.

Games crash. When one does, its episode is cut short as if the clock had run out, and the next one starts in a new game.
"""

import contextlib
import importlib.util
import subprocess
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from prism_marl.envs.python.base import observation, outcome
from prism_marl.envs.skirmish import Skirmish, make_skirmish
from prism_marl.envs.workers.channel import pack
from prism_marl.envs.workers.process import LOST_IN_A_ROW, TRIES, Answer, Child, GameLostError
from prism_marl.errors import UserError
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step

PATIENCE = 300.0  # seconds for one answer; starting the game takes the longest
PACKAGE = "git+https://github.com/oxwhirl/smacv2.git"


class SMACv2:
    """One game; its twin in JAX lends the sizes."""

    replayable: ClassVar[bool] = False  # the game rolls dice of its own

    def __init__(self, twin: Skirmish):
        self.twin = twin
        self.spec: EnvSpec = smacv2_spec(f"{twin.race}_{twin.agents}_vs_{twin.enemies}")
        self.restarts = 0  # games lost so far
        self.dropped, self.lost = 0, False  # episodes cut short so far, and whether the present one is
        self._in_a_row = 0  # episodes cut short since one came to its end
        self._child: Child | None = None
        self._asked = False  # an answer is on its way
        self._last: Observation | None = None
        self._check()

    def begin_reset(self, seed: int) -> None:
        """Let the game start an episode while others do the same; ``reset`` waits for it."""
        self._ask("reset", int(seed))

    def reset(self, seed: int) -> Observation:
        """An episode depends on its seed up to the game's own dice."""
        reason = ""
        for _ in range(TRIES):
            try:
                if not self._asked:
                    self._ask("reset", int(seed))
                self._last, self.lost = self._observation(**self._answer()[1]), False
                return self._last
            except GameLostError as error:
                reason = str(error)
                self._restart()
        raise UserError(
            f"task: '{self.spec.name}' could not start StarCraft II in {TRIES} tries ({reason}); "
            f"check SC2PATH and the SMAC maps, or play 'skirmish/{self._variant}'",
            code=1,
        )

    def begin_step(self, action: np.ndarray) -> None:
        """Let the game play while others do the same; ``step`` waits for it."""
        self._ask("step", np.asarray(action).tolist())

    def step(self, action: np.ndarray) -> Step:
        """A lost game is truncation: what was seen last is what there is to bootstrap from."""
        try:
            if not self._asked:
                self.begin_step(action)
            words, look = self._answer()
        except GameLostError as error:
            self._restart()
            return self._cut(str(error))
        over, info = words["over"], words["info"]
        if over and "battle_won" not in info:  # the package has replaced its game and says nothing else
            return self._cut("smacv2 has replaced its game")
        if over:
            self._in_a_row = 0
        self._last = self._observation(**look)
        clock = over and bool(info.get("episode_limit", False))
        metrics = {name: float(info.get(name, 0)) for name in self.spec.metrics}
        return outcome(self._last, words["reward"], terminated=over and not clock, truncated=clock, metrics=metrics)

    def scene(self) -> Scene | None:
        """The game draws itself; there is nothing to draw from here."""
        return None

    def close(self) -> None:
        """Ask the game to stop, and end its process if it does not."""
        if self._child is None:
            return
        with contextlib.suppress(OSError, EOFError, subprocess.TimeoutExpired):
            self._child.channel.send(pack(["close", None]))
            self._child.process.wait(timeout=5)
        self._end()

    @property
    def _variant(self) -> str:
        return f"{self.twin.race}_{self.twin.agents}_vs_{self.twin.enemies}"

    def _check(self) -> None:
        """The package's sizes must be ours: networks are built from them."""
        try:
            self._ask("info", None)
            info, _ = self._answer()
        except GameLostError as error:
            self._end()
            raise UserError(
                f"task: '{self.spec.name}' could not be built ({error}); repair smacv2 or play "
                f"'skirmish/{self._variant}'",
                code=1,
            ) from None
        names = {"n_agents": "agents", "n_actions": "actions", "obs_shape": "observation", "state_shape": "state"}
        for theirs, ours in (names | {"episode_limit": "horizon"}).items():
            found, wanted = info.get(theirs), getattr(self.spec, ours)
            if found != wanted:
                self.close()
                told = "unknown" if found is None else f"{found:g}"
                raise UserError(
                    f"task: this version of smacv2 has {theirs} {told}, not {wanted}; install it as "
                    f"`pip install {PACKAGE}`"
                )

    def _cut(self, reason: str) -> Step:
        assert self._last is not None, "a step follows a reset"
        self.dropped, self.lost, self._in_a_row = self.dropped + 1, True, self._in_a_row + 1
        if self._in_a_row >= LOST_IN_A_ROW:
            raise UserError(
                f"task: '{self.spec.name}' lost {LOST_IN_A_ROW} episodes in a row ({reason}); repair StarCraft II or "
                f"smacv2, or play 'skirmish/{self._variant}'",
                code=1,
            )
        return outcome(self._last, 0.0, terminated=False, truncated=True, metrics=dict.fromkeys(self.spec.metrics, 0.0))

    def _observation(self, local: np.ndarray, state: np.ndarray, avail: np.ndarray) -> Observation:
        role: Any = local[:, -3:].argmax(axis=1)  # the type bits; the dead see zeros, which count as type 0
        return observation(local, avail, state)._replace(role=role)

    def _ask(self, verb: str, argument: Any) -> None:
        """Put a question; whatever breaks is found when the answer is read."""
        if self._child is None:
            sizes = (str(self.twin.agents), str(self.twin.enemies))
            self._child = Child(f"{__package__}.smacv2_game", self.twin.race, *sizes)
        self._asked = True
        with contextlib.suppress(OSError, EOFError):
            self._child.channel.send(pack([verb, argument]))

    def _answer(self) -> Answer:
        self._asked = False
        assert self._child is not None, "an answer follows a question"
        words, arrays = self._child.answer(PATIENCE)
        if "failed" in words:
            raise GameLostError(words["failed"])
        return words, arrays

    def _restart(self) -> None:
        self.restarts += 1
        self._end()

    def _end(self) -> None:
        """End the process for good; the next question starts another."""
        child, self._child, self._asked = self._child, None, False
        if child is not None:
            child.end()


def smacv2_spec(variant: str) -> EnvSpec:
    """Sizes of ``smacv2/<race>_<n>_vs_<m>``, which need no game."""
    return replace(_twin(variant).spec, name=f"smacv2/{variant}", version="smacv2")


def make_smacv2(variant: str) -> SMACv2:
    """Build ``smacv2/<race>_<n>_vs_<m>``."""
    twin = _twin(variant)
    if importlib.util.find_spec("smacv2") is None:
        raise UserError(
            f"task: 'smacv2/{variant}' needs StarCraft II and a package that is not installed: pip install {PACKAGE}; "
            f"'skirmish/{variant}' needs neither"
        )
    return SMACv2(twin)


def _twin(variant: str) -> Skirmish:
    try:
        twin = make_skirmish(variant)
    except UserError as error:
        raise UserError(str(error).replace("'skirmish/", "'smacv2/")) from None
    if twin.enemy_visibility != "clean":
        raise UserError(f"task: 'smacv2/{variant}' is as published by itself; write 'smacv2/{variant[:-10]}'")
    return twin
