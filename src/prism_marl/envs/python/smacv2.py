"""The original SMACv2, which needs StarCraft II: ``smacv2/<race>_<n>_vs_<m>``, each game in a process of its own.

Games crash. The episode of a crashed game is truncated, and the next episode starts in a new game.
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
from prism_marl.envs.workers.process import LOST_IN_A_ROW, TRIES, Answer, EnvLostError, WorkerProcess
from prism_marl.errors import UserError, install_command
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step

PATIENCE = 300.0  # seconds that one answer may take; the start of the game takes longest
PACKAGE = "git+https://github.com/oxwhirl/smacv2.git"


class SMACv2:
    """One game; its twin ``skirmish`` in JAX gives the sizes."""

    replayable: ClassVar[bool] = False  # the game draws random numbers of its own

    def __init__(self, twin: Skirmish):
        self.twin = twin
        self.spec: EnvSpec = smacv2_spec(f"{twin.race}_{twin.agents}_vs_{twin.enemies}")
        self.restarts = 0  # games lost so far
        self.dropped, self.lost = 0, False  # episodes lost so far, and whether the present one is lost
        self._in_a_row = 0  # episodes lost since one has ended normally
        self._process: WorkerProcess | None = None
        self._asked = False  # a request has no answer yet
        self._last: Observation | None = None
        self._check()

    def begin_reset(self, seed: int) -> None:
        """Start a reset without waiting, so that other games can work too; ``reset`` waits for it."""
        self._ask("reset", int(seed))

    def reset(self, seed: int) -> Observation:
        """The seed decides everything but the random numbers of the game itself."""
        reason = ""
        for _ in range(TRIES):
            try:
                if not self._asked:
                    self._ask("reset", int(seed))
                self._last, self.lost = self._observation(**self._answer()[1]), False
                return self._last
            except EnvLostError as error:
                reason = str(error)
                self._restart()
        raise UserError(
            f"task: '{self.spec.name}' could not start StarCraft II in {TRIES} tries ({reason}); "
            f"check SC2PATH and the SMAC maps, or play 'skirmish/{self._variant}'",
            code=1,
        )

    def begin_step(self, action: np.ndarray) -> None:
        """Start a step without waiting, so that other games can work too; ``step`` waits for it."""
        self._ask("step", np.asarray(action).tolist())

    def step(self, action: np.ndarray) -> Step:
        """If the game is lost, its episode is truncated: the last observation serves for bootstrapping."""
        try:
            if not self._asked:
                self.begin_step(action)
            content, arrays = self._answer()
        except EnvLostError as error:
            self._restart()
            return self._drop(str(error))
        over, info = content["over"], content["info"]
        if over and "battle_won" not in info:  # the only sign that the package has restarted its game by itself
            return self._drop("smacv2 has replaced its game")
        if over:
            self._in_a_row = 0
        self._last = self._observation(**arrays)
        clock = over and bool(info.get("episode_limit", False))
        metrics = {name: float(info.get(name, 0)) for name in self.spec.metrics}
        return outcome(self._last, content["reward"], terminated=over and not clock, truncated=clock, metrics=metrics)

    def scene(self) -> Scene | None:
        """None: StarCraft II has its own pictures."""
        return None

    def close(self) -> None:
        """Ask the game to stop, and kill its process if it does not."""
        if self._process is None:
            return
        with contextlib.suppress(OSError, EOFError, subprocess.TimeoutExpired):
            self._process.channel.send(pack(["close", None]))
            self._process.process.wait(timeout=5)
        self._kill()

    @property
    def _variant(self) -> str:
        return f"{self.twin.race}_{self.twin.agents}_vs_{self.twin.enemies}"

    def _check(self) -> None:
        """Raise unless the package has the sizes of ``spec``, from which the networks are built."""
        try:
            self._ask("info", None)
            info, _ = self._answer()
        except EnvLostError as error:
            self._kill()
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
                    f"`{install_command(PACKAGE)}`"
                )

    def _drop(self, reason: str) -> Step:
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
        role: Any = local[:, -3:].argmax(axis=1)  # the type bits; a dead agent observes zeros, so its type is 0
        return observation(local, avail, state)._replace(role=role)

    def _ask(self, command: str, argument: Any) -> None:
        """Send a request; ``_answer`` raises the errors."""
        if self._process is None:
            sizes = (str(self.twin.agents), str(self.twin.enemies))
            self._process = WorkerProcess(f"{__package__}.smacv2_game", self.twin.race, *sizes)
        self._asked = True
        with contextlib.suppress(OSError, EOFError):
            self._process.channel.send(pack([command, argument]))

    def _answer(self) -> Answer:
        self._asked = False
        assert self._process is not None, "an answer follows a request"
        content, arrays = self._process.answer(PATIENCE)
        if "failed" in content:
            raise EnvLostError(content["failed"])
        return content, arrays

    def _restart(self) -> None:
        self.restarts += 1
        self._kill()

    def _kill(self) -> None:
        """Kill the process; the next request starts a new one."""
        process, self._process, self._asked = self._process, None, False
        if process is not None:
            process.kill()


def smacv2_spec(variant: str) -> EnvSpec:
    """Sizes of ``smacv2/<race>_<n>_vs_<m>``; works without the package and the game."""
    return replace(_twin(variant).spec, name=f"smacv2/{variant}", version="smacv2")


def make_smacv2(variant: str) -> SMACv2:
    """Build ``smacv2/<race>_<n>_vs_<m>``."""
    twin = _twin(variant)
    if importlib.util.find_spec("smacv2") is None:
        raise UserError(
            f"task: 'smacv2/{variant}' needs StarCraft II and a package that is not installed: "
            f"{install_command(PACKAGE)}; 'skirmish/{variant}' needs neither"
        )
    return SMACv2(twin)


def _twin(variant: str) -> Skirmish:
    try:
        twin = make_skirmish(variant)
    except UserError as error:
        raise UserError(str(error).replace("'skirmish/", "'smacv2/")) from None
    if twin.enemy_visibility != "clean":
        raise UserError(f"task: 'smacv2/{variant}' needs no '-published'; write 'smacv2/{variant[:-10]}'")
    return twin
