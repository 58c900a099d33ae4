"""Any module with a PettingZoo ``parallel_env``, also the user's own: ``pettingzoo/<module>[?name=value&...]``.

Agents keep their index for a whole episode, in the order of ``possible_agents``: each of them is a slot. The
environment says who plays (``agents``), at a reset and after every step, so agents may end, join later and come back.
A slot whose agent does not play observes zeros and may only choose action 0, which is not passed to the environment.
Agents with smaller spaces get zeros behind their observations, actions that are never legal, and numbers in their
action vectors that are ignored. What an environment returns has to be what its spaces say; otherwise the run ends with
a sentence that names the agent and the step.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from prism_marl.envs.base import require
from prism_marl.envs.python.actions import read_actions
from prism_marl.envs.python.base import observation, outcome
from prism_marl.envs.python.modules import imported
from prism_marl.envs.python.spaces import MisfitError, flags, flatten, real, shaped
from prism_marl.envs.settings import read_settings, with_setting
from prism_marl.errors import UserError
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, RewardKind, Step

LONGEST = 100_000  # steps, because whole episodes are stored
MASK, INSIDE = "action_mask", "observation"  # keys of a dict observation


class PettingZoo:
    """A parallel environment as one team."""

    def __init__(
        self, name: str, env: Any, horizon: int | None = None, *, joint: bool = False, reward: RewardKind = "agent"
    ):
        self.env, self._spaces = env, require("gymnasium.spaces", "pettingzoo")
        self.agents: list[Any] = list(getattr(env, "possible_agents", None) or ())
        if not self.agents:
            raise UserError(f"task: '{name}' names no agents; give its environment a list 'possible_agents'")
        self._names = frozenset(self.agents)
        for agent in _repeated(self.agents):
            raise UserError(
                f"task: '{name}' names agent '{agent}' twice in possible_agents; give each a name of its own"
            )
        self._observed = {agent: self._observation_space(name, agent) for agent in self.agents}
        self._actions = read_actions(name, self.agents, env, self._spaces)
        self._sizes = self._actions.sizes
        several, places = self._actions.kind == "discrete", np.arange(max(self._sizes))
        self._all = [places < (size if several else places.size) for size in self._sizes]  # without a mask
        self._living: list[Any] = []
        self._clock = 0
        self.env.reset(seed=0)
        state = None if joint else self._state()
        size = max(self._spaces.flatdim(space) for space in self._observed.values())
        version = require("pettingzoo", "pettingzoo").__version__
        self.spec = EnvSpec(
            name=name,
            agents=len(self.agents),
            observation=size,
            state=size * len(self.agents) if state is None else state.size,
            actions=max(self._sizes),
            roles=len(self.agents),
            horizon=_horizon(name, env, horizon),
            kind=self._actions.kind,
            version=f"{self._metadata().get('name', type(env).__name__)}, pettingzoo {version}",
            state_is_joint=state is None,
            reward=reward,
        )

    def reset(self, seed: int) -> Observation:
        observed, infos = self.env.reset(seed=seed)
        self._clock, self._living = 0, self._present()
        return self._observation(observed, infos, set(self._living))

    def step(self, action: np.ndarray) -> Step:
        """The team receives the sum over agents. The episode ends when all agents have ended or at the time limit."""
        chosen = {
            agent: self._actions.convert(index, action[index])
            for index, agent in enumerate(self.agents)
            if agent in self._living
        }
        observed, rewards, ends, cuts, infos = self.env.step(chosen)
        self._known("an end", ends)
        self._known("an end", cuts)
        present = self._present()
        cut = {agent for agent in self._living if cuts.get(agent) and not ends.get(agent)}
        self._clock, self._living = self._clock + 1, [a for a in present if not (ends.get(a) or cuts.get(a))]
        terminated = not self._living and not cut  # if the last agents were truncated, so is the episode
        truncated = not terminated and (not self._living or self._clock >= self.spec.horizon)
        obs = self._observation(observed, infos, {*self._living, *cut})
        given = self._rewards(rewards)
        each = None
        if self.spec.reward == "agent":
            each = np.array([given.get(agent, 0.0) for agent in self.agents])
        total = float(sum(given.values()))
        return outcome(obs, total, terminated=terminated, truncated=truncated, agent_reward=each)

    def scene(self) -> Scene | None:
        """The result of the environment's own method ``scene()``; None if it has no such method."""
        scene = getattr(getattr(self.env, "unwrapped", self.env), "scene", None)
        return scene() if scene else None

    def close(self) -> None:
        self.env.close()

    def _present(self) -> list[Any]:
        """Who plays now: some of the agents, each once. Whoever was not there before has joined."""
        playing = list(self.env.agents)
        self._known("a turn", playing)
        for agent in _repeated(playing):
            raise self._wrong(
                agent, "two turns", f"there is one slot for each of {len(self.agents)} agents: list it once"
            )
        return playing

    def _observation(self, observed: dict[Any, Any], infos: dict[Any, Any], active: set[Any]) -> Observation:
        local = np.zeros((self.spec.agents, self.spec.observation), np.float32)
        avail = np.zeros((self.spec.agents, self.spec.actions), bool)
        self._known("an observation", observed)
        for index, agent in enumerate(self.agents):
            if agent not in active:
                avail[index, : 1 if self.spec.kind == "discrete" else 0] = True  # continuous: no number counts
                continue
            if agent not in observed:
                raise self._wrong(agent, "no observation", "return one for every agent that goes on")
            seen, mask = observed[agent], infos.get(agent, {}).get(MASK)
            if isinstance(seen, dict) and MASK in seen:
                mask = seen[MASK]
                seen = seen[INSIDE] if set(seen) == {MASK, INSIDE} else {k: v for k, v in seen.items() if k != MASK}
            try:
                flat = flatten(self._spaces, self._observed[agent], seen)
            except MisfitError as error:
                raise self._wrong(agent, f"an observation that {error}", "return what observation_space says") from None
            local[index, : flat.size] = flat
            avail[index] = self._all[index] if mask is None else self._legal(index, agent, mask)
        return observation(local, avail, None if self.spec.state_is_joint else self._checked_state())

    def _legal(self, index: int, agent: Any, mask: Any) -> np.ndarray:
        """Which actions the agent may take."""
        if self.spec.kind == "continuous":
            return self._all[index]
        legal = np.zeros(self.spec.actions, bool)
        try:
            legal[: self._sizes[index]] = flags(mask, self._sizes[index])
        except MisfitError as error:
            raise self._wrong(agent, f"an action_mask that {error}", "give 0 or 1 for each of its actions") from None
        if not legal.any():
            raise self._wrong(agent, "no legal action", "let its action_mask allow one")
        return legal

    def _rewards(self, rewards: dict[Any, Any]) -> dict[Any, float]:
        """One number for each agent that gets one."""
        self._known("a reward", rewards)
        given: dict[Any, float] = {}
        for agent, reward in rewards.items():
            try:
                plain = type(reward) is float
                given[agent] = reward if plain else float(shaped(real(reward).reshape(-1), (1,))[0])
            except MisfitError as error:
                raise self._wrong(agent, f"a reward that {error}", "return one number for each agent") from None
        return given

    def _known(self, what: str, given: Iterable[Any]) -> None:
        """Raise if something is given to an agent that does not exist: it would be left out, or go to the others."""
        if self._names.issuperset(given):
            return
        for agent in given:
            if agent not in self._names:
                known = ", ".join(map(str, self.agents[:9]))
                raise self._wrong(agent, what, f"only {known} are in possible_agents: name there all who may ever join")

    def _wrong(self, agent: Any, what: str, remedy: str) -> UserError:
        return UserError(
            f"task: '{self.spec.name}' gives agent '{agent}' {what} at step {self._clock}; {remedy}", code=1
        )

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
                f"{self._clock}; use the joint observation instead: {with_setting(self.spec.name, 'state=joint')}",
                code=1,
            )
        return state

    def _observation_space(self, name: str, agent: Any) -> Any:
        """The space of an agent's observation, without its action mask."""
        space = self.env.observation_space(agent)
        if isinstance(space, self._spaces.Dict) and MASK in space.spaces:
            rest = {key: part for key, part in space.spaces.items() if key != MASK}
            space = rest[INSIDE] if set(rest) == {INSIDE} else self._spaces.Dict(rest)
        if not space.is_np_flattenable:
            raise UserError(
                f"task: '{name}' gives agent '{agent}' a {type(space).__name__} space to observe: its length varies; "
                "wrap the environment so that it gives a Box"
            )
        return space

    def _metadata(self) -> dict[str, Any]:
        return getattr(self.env, "metadata", None) or {}


def _repeated(agents: list[Any]) -> list[Any]:
    """Agents that a list has more than once."""
    return [] if len(set(agents)) == len(agents) else [a for a in dict.fromkeys(agents) if agents.count(a) > 1]


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
