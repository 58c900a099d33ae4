"""Any module with a PettingZoo ``parallel_env``, also the user's own: ``pettingzoo/<module>[?name=value&...]``.

Agents keep their index for a whole episode, in the order of ``possible_agents``: each of them is a slot. The
environment says who plays (``agents``), at a reset and after every step, so agents may end, join later and come back.
A slot whose agent does not play observes zeros and may only choose action 0, which is not passed to the environment.
Agents with smaller spaces get zeros behind their observations, actions that are never legal, and numbers in their
action vectors that are ignored. What an environment returns has to be what its spaces say; otherwise the run ends with
a sentence that names the agent and the step.
"""

import re
from typing import Any, ClassVar, TypeVar

import numpy as np

from prism_marl.envs.base import require
from prism_marl.envs.python.base import observation, outcome
from prism_marl.envs.python.modules import imported
from prism_marl.envs.python.spaces import real
from prism_marl.envs.python.team import Team
from prism_marl.envs.settings import read_settings, with_setting
from prism_marl.errors import UserError
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, RewardKind, Step

LONGEST = 100_000  # steps, because whole episodes are stored


class PettingZoo:
    """A parallel environment as one team."""

    exact: ClassVar[bool] = True

    def __init__(
        self, name: str, env: Any, horizon: int | None = None, *, joint: bool = False, reward: RewardKind = "agent"
    ):
        self.env, self.team = env, Team(name, env, require("gymnasium.spaces", "pettingzoo"))
        self._living: list[Any] = []
        self.env.reset(seed=0)
        state = None if joint else self._state()
        agents, size = len(self.team.agents), self.team.width
        version = require("pettingzoo", "pettingzoo").__version__
        self.spec = EnvSpec(
            name=name,
            agents=agents,
            observation=size,
            state=size * agents if state is None else state.size,
            actions=self.team.choices,
            roles=agents,
            horizon=_horizon(name, env, horizon),
            kind=self.team.actions.kind,
            version=f"{self._metadata().get('name', type(env).__name__)}, pettingzoo {version}",
            state_is_joint=state is None,
            reward=reward,
        )

    def reset(self, seed: int) -> Observation:
        observed, infos = self.env.reset(seed=seed)
        self.team.clock = 0
        self._living = self.team.present(self.env.agents)
        return self._observation(observed, infos, self._living)

    def step(self, action: np.ndarray) -> Step:
        """The team receives the sum over agents. The episode ends when all agents have ended or at the time limit."""
        team, sent = self.team, self.team.actions.convert(action)
        chosen = {team.agents[slot]: sent[slot] for slot in team.slots(self._living)}
        observed, rewards, ends, cuts, infos = self.env.step(chosen)
        over, cut = team.over(ends, cuts)
        living, cut = team.present(self.env.agents), cut.intersection(self._living)
        if over:
            living = [agent for agent in living if agent not in over]
        self._living, team.clock = living, team.clock + 1
        terminated = not living and not cut  # if the last agents were truncated, so is the episode
        truncated = not terminated and (not living or team.clock >= self.spec.horizon)
        obs = self._observation(observed, infos, [*living, *cut] if cut else living)
        each, total = team.rewards(rewards)
        own = each if self.spec.reward == "agent" else None
        return outcome(obs, total, terminated=terminated, truncated=truncated, agent_reward=own)

    def scene(self) -> Scene | None:
        """The result of the environment's own method ``scene()``; None if it has no such method."""
        scene = getattr(getattr(self.env, "unwrapped", self.env), "scene", None)
        return scene() if scene else None

    def close(self) -> None:
        self.env.close()

    def _observation(self, observed: dict[Any, Any], infos: dict[Any, Any], active: list[Any]) -> Observation:
        local, avail = self.team.see(self.team.slots(active), observed, infos)
        return observation(local, avail, None if self.spec.state_is_joint else self._checked_state())

    def _state(self) -> np.ndarray | None:
        """The environment's own state; None if it has none."""
        try:
            with np.errstate(over="ignore"):  # what becomes infinite is noticed as such
                return real(self.env.state()).astype(np.float32).reshape(-1)
        except Exception:  # missing or broken; wrappers raise different exceptions
            return None

    def _checked_state(self) -> np.ndarray:
        """The environment's own state; raises if its length has changed."""
        state = self._state()
        if state is None or state.size != self.spec.state:
            found = "fails" if state is None else f"has {state.size} numbers"
            raise UserError(
                f"task: state() of '{self.spec.name}' gave {self.spec.state} numbers at first and {found} at step "
                f"{self.team.clock}; use the joint observation instead: {with_setting(self.spec.name, 'state=joint')}",
                code=1,
            )
        return state

    def _metadata(self) -> dict[str, Any]:
        return getattr(self.env, "metadata", None) or {}


def foreign_module(task: str) -> str | None:
    """The module of a task if it belongs neither to us nor to PettingZoo."""
    family, _, variant = task.partition("/")
    path = variant.partition("?")[0]
    return path if family == "pettingzoo" and not path.startswith("pettingzoo.") else None


_Built = TypeVar("_Built", bound=PettingZoo)


def make_pettingzoo(variant: str) -> PettingZoo:
    """Build ``pettingzoo/<module>[?name=value&...]``.

    ``horizon`` (the time limit in steps), ``state=joint`` and ``reward=sum`` (one reward for the team, and none for
    single agents) are read here, other names go to ``parallel_env``.
    """
    path, _, query = variant.partition("?")
    name = f"pettingzoo/{variant}"
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", path):
        raise UserError(
            f"task: '{name}' must name a module with parallel_env, such as "
            "'pettingzoo/pettingzoo.butterfly.knights_archers_zombies_v11?max_cycles=200'"
        )
    return build(PettingZoo, name, path, query)


def build(cls: type[_Built], name: str, path: str, query: str) -> _Built:
    """Build what ``cls`` makes of the ``parallel_env`` of a module, with the settings of a task name."""
    settings = read_settings(name, query)
    horizon = settings.pop("horizon", None)
    if horizon is not None and not (type(horizon) is int and 1 <= horizon <= LONGEST):
        raise UserError(f"task: horizon of '{name}' must be a whole number from 1 to {LONGEST}, such as horizon=200")
    state = settings.pop("state", None)
    if state not in (None, "joint"):
        raise UserError(f"task: state of '{name}' can only be 'joint'; leave it out to use the environment's own")
    reward = settings.pop("reward", "agent")
    if reward not in ("agent", "sum"):
        raise UserError(f"task: reward of '{name}' must be 'agent' or 'sum', not '{reward}'")
    make = getattr(imported(name, path), "parallel_env", None)
    if not callable(make):
        raise UserError(
            f"task: module '{path}' has no parallel_env; add a function of that name that returns a ParallelEnv"
        )
    try:
        env = make(**settings)
    except (TypeError, ValueError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"task: parallel_env of '{name}' refuses its settings ({reason}); change what follows '?'"
        ) from error
    kind: RewardKind = "agent" if reward == "agent" else "team"
    return cls(name, env, horizon or settings.get("max_cycles"), joint=state == "joint", reward=kind)


def _horizon(name: str, env: Any, asked: int | None) -> int:
    """The time limit in steps: the setting, or the environment's own ``max_cycles``."""
    inner = getattr(env, "unwrapped", env)
    known = [(getattr(env, "metadata", None) or {}).get("max_cycles")]
    known += [getattr(holder, "max_cycles", None) for holder in (env, inner)]
    found = next((value for value in (asked, *known) if value is not None), None)
    if not isinstance(found, int | np.integer) or not 1 <= found <= LONGEST:
        better = with_setting(name, "horizon=200")
        raise UserError(f"task: '{name}' does not say how long an episode may last; write {better}")
    return int(found)
