"""The agents of a game with PettingZoo's interface: each has a slot, and what the game gives them by name becomes rows.

Everything is compared with what the game's spaces say. What equal agents get is looked at as one array, by the same
rules as alone, because single calls cost more than what they do. Where that array does not follow the rules, or agents
differ, each is looked at alone, which also says who is wrong.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from prism_marl.envs.python.actions import Choices, Controls, read_actions
from prism_marl.envs.python.spaces import MisfitError, box, flags, flatten, real, shaped
from prism_marl.errors import UserError

FLOAT64 = np.dtype(np.float64)
MASK, INSIDE = "action_mask", "observation"  # keys of a dict observation


class Team:
    """The slots of a game's agents, in the order of ``possible_agents``."""

    def __init__(self, name: str, env: Any, spaces: Any):
        """``spaces`` is gymnasium's module."""
        self.name, self._spaces = name, spaces
        self.agents: list[Any] = list(getattr(env, "possible_agents", None) or ())
        if not self.agents:
            raise UserError(f"task: '{name}' names no agents; give its environment a list 'possible_agents'")
        for agent in _repeated(self.agents):
            raise UserError(
                f"task: '{name}' names agent '{agent}' twice in possible_agents; give each a name of its own"
            )
        self._names, self.every = frozenset(self.agents), list(range(len(self.agents)))
        self._observed = [self._observation_space(env, agent) for agent in self.agents]
        self.width: int = max(spaces.flatdim(space) for space in self._observed)
        self._one_box = self._common_box()
        self.actions: Choices | Controls = read_actions(name, self.agents, env, spaces)
        self._sizes = self.actions.sizes
        self.choices = max(self._sizes)
        several, places = self.actions.kind == "discrete", np.arange(self.choices)
        self._all = np.stack([places < (size if several else places.size) for size in self._sizes])  # without a mask
        self._nothing = bytes(self.choices)  # a row that allows nothing
        self._nobody = dict.fromkeys(self.agents, False)  # whose part has ended
        self.clock = 0  # steps of the episode so far, for sentences

    def slots(self, agents: Iterable[Any]) -> list[int]:
        """The slots of some agents, in ascending order."""
        if agents == self.agents:
            return self.every
        some = set(agents)
        return [slot for slot in self.every if self.agents[slot] in some]

    def present(self, playing: Iterable[Any]) -> list[Any]:
        """Who plays now: some of the agents, each once. Whoever was not there before has joined."""
        found = list(playing)
        if found != self.agents:
            self.known("a turn", found)
            for agent in _repeated(found):
                slots = f"there is one slot for each of {len(self.agents)} agents: list it once"
                raise self._wrong(agent, "two turns", slots)
        return found

    def over(self, ends: Any, cuts: Any) -> tuple[set[Any], set[Any]]:
        """Whose part has ended, and who could have gone on but for a time limit."""
        if ends == cuts == self._nobody:
            return set(), set()
        self.known("an end", ends)
        self.known("an end", cuts)
        ended = {agent for agent in self.agents if ends.get(agent)}
        cut = {agent for agent in self.agents if cuts.get(agent)}
        return ended | cut, cut - ended

    def known(self, what: str, given: Iterable[Any]) -> None:
        """Raise if something is given to an agent that does not exist: it would be left out, or go to the others."""
        if self._names.issuperset(given):
            return
        for agent in given:
            if agent not in self._names:
                known = ", ".join(map(str, self.agents[:9]))
                raise self._wrong(agent, what, f"only {known} are in possible_agents: name there all who may ever join")

    def see(self, slots: list[int], observed: Any, infos: Any) -> tuple[np.ndarray, np.ndarray]:
        """Observations [a, o] and legal actions [a, u] of all; agents in other slots do not play."""
        playing = self.agents if slots is self.every else [self.agents[slot] for slot in slots]
        seen = [*observed.values()] if [*observed] == playing else self._seen(playing, observed)
        masks = [infos.get(agent, {}).get(MASK) for agent in playing]
        for index, one in enumerate(seen):
            if isinstance(one, dict) and MASK in one:
                masks[index] = one[MASK]
                inside = set(one) == {MASK, INSIDE}
                seen[index] = one[INSIDE] if inside else {k: v for k, v in one.items() if k != MASK}
        local, avail = self._vectors(slots, seen), self._legal(slots, masks)
        return (local, avail) if slots is self.every else self._among_idle(slots, local, avail)

    def _seen(self, playing: list[Any], observed: Any) -> list[Any]:
        self.known("an observation", observed)
        for agent in playing:
            if agent not in observed:
                raise self._wrong(agent, "no observation", "return one for every agent that goes on")
        return [observed[agent] for agent in playing]

    def rewards(self, rewards: Any) -> tuple[np.ndarray, float]:
        """What each agent gets, one number or nothing, and the sum."""
        alike = [*rewards] == self.agents
        if not alike:
            self.known("a reward", rewards)
        try:
            found = real([*rewards.values()])
            if found.dtype is not FLOAT64 or found.ndim != 1:
                found = shaped(found, (len(rewards),)).astype(np.float64)
        except MisfitError:
            found = np.array([self._reward(agent, reward) for agent, reward in rewards.items()])
        given = found.tolist()
        if not alike:
            named = dict(zip(rewards, given, strict=True))
            found = np.array([named.get(agent, 0.0) for agent in self.agents])
        return found, float(sum(given))

    def _reward(self, agent: Any, reward: Any) -> float:
        try:
            return float(shaped(real(reward).reshape(-1), (1,))[0])
        except MisfitError as error:
            raise self._wrong(agent, f"a reward that {error}", "return one number for each agent") from None

    def _vectors(self, slots: list[int], seen: list[Any]) -> np.ndarray:
        """Observations of some slots."""
        if self._one_box:
            dtype, shape = self._one_box
            try:
                return box(dtype, (len(slots), *shape), seen).reshape(len(slots), self.width)
            except MisfitError:
                pass
        local = np.zeros((len(slots), self.width), np.float32)
        for row, slot, one in zip(local, slots, seen, strict=True):
            try:
                flat = flatten(self._spaces, self._observed[slot], one)
            except MisfitError as error:
                what = f"an observation that {error}"
                raise self._wrong(self.agents[slot], what, "return what observation_space says") from None
            row[: flat.size] = flat
        return local

    def _legal(self, slots: list[int], masks: list[Any]) -> np.ndarray:
        """Which actions some slots may take. A mask of None allows all."""
        if self.actions.kind == "continuous" or all(mask is None for mask in masks):
            return self._all[slots]
        if min(self._sizes) == self.choices:
            try:
                found = flags(masks, (len(slots), self.choices))
                if self._each_has_one(found):
                    return found
            except MisfitError:
                pass
        legal = self._all[slots]
        for row, slot, mask in zip(legal, slots, masks, strict=True):
            if mask is not None:
                row[: self._sizes[slot]] = self._mask(slot, mask)
        return legal

    def _each_has_one(self, legal: np.ndarray) -> bool:
        """Whether every row has a true value: at once where no run of false ones is as long as a row."""
        return self._nothing not in legal.tobytes() or bool(legal.any(axis=1).all())

    def _mask(self, slot: int, mask: Any) -> np.ndarray:
        """Which of its own actions the agent may take."""
        agent = self.agents[slot]
        try:
            legal = flags(mask, (self._sizes[slot],))
        except MisfitError as error:
            raise self._wrong(agent, f"an action_mask that {error}", "give 0 or 1 for each of its actions") from None
        if not legal.any():
            raise self._wrong(agent, "no legal action", "let its action_mask allow one")
        return legal

    def _among_idle(self, slots: list[int], local: np.ndarray, avail: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What some slots observe and may do, among those that do not play."""
        seen = np.zeros((len(self.agents), self.width), np.float32)
        legal = np.zeros((len(self.agents), self.choices), bool)
        legal[:, : 1 if self.actions.kind == "discrete" else 0] = True  # continuous: no number counts
        seen[slots], legal[slots] = local, avail
        return seen, legal

    def _wrong(self, agent: Any, what: str, remedy: str) -> UserError:
        return UserError(f"task: '{self.name}' gives agent '{agent}' {what} at step {self.clock}; {remedy}", code=1)

    def _observation_space(self, env: Any, agent: Any) -> Any:
        """The space of an agent's observation, without its action mask."""
        space = env.observation_space(agent)
        if isinstance(space, self._spaces.Dict) and MASK in space.spaces:
            rest = {key: part for key, part in space.spaces.items() if key != MASK}
            space = rest[INSIDE] if set(rest) == {INSIDE} else self._spaces.Dict(rest)
        if not space.is_np_flattenable:
            raise UserError(
                f"task: '{self.name}' gives agent '{agent}' a {type(space).__name__} space to observe: its length "
                "varies; wrap the environment so that it gives a Box"
            )
        return space

    def _common_box(self) -> tuple[np.dtype, tuple[int, ...]] | None:
        """Type and shape of the Box that every agent observes; None where they differ or observe something else."""
        if not all(isinstance(space, self._spaces.Box) for space in self._observed):
            return None
        kinds = {(space.dtype, space.shape) for space in self._observed}
        return kinds.pop() if len(kinds) == 1 else None


def _repeated(agents: list[Any]) -> list[Any]:
    """Agents that a list has more than once."""
    return [] if len(set(agents)) == len(agents) else [a for a in dict.fromkeys(agents) if agents.count(a) > 1]
