"""What a policy file says about itself: who acts, what the numbers of an observation mean, how an action is made.

It is plain data (JSON), written beside the arrays. Everything is checked when it is read, because a policy file often
comes from somebody else.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from prism_marl.errors import UserError
from prism_marl.storage.files import parse_object

FORMAT = "prism-marl policy 1"
ACTIVATIONS = ("relu", "tanh")  # steps of a network without numbers of their own
CORE = "gru"  # the step that carries the memory; its arrays are named ``input``, ``hidden`` and ``gate``
CORE_LAYERS = ("input", "hidden")
LARGEST = 2**20  # of any size that a file may claim

Rule = Literal["argmax", "direct"]
"""How outputs become an action: the best legal entry, or the outputs themselves, as a vector in [-1, 1]."""
Exploration = Literal["epsilon", "noise", "softmax"]
"""How training explores around that: uniform legal actions now and then, Gaussian noise on the vector, or sampling in
proportion to exp(output)."""


@dataclass(frozen=True)
class Contract:
    """All that a policy needs besides its arrays, and what its user must know."""

    task: str
    method: str
    learner: str
    agents: int  # in the team it was trained with
    agent: int | None  # the one agent that the file holds; None: the whole team
    observation: int  # numbers of one agent's observation
    actions: int  # discrete actions, or numbers of one agent's action vector
    kind: Literal["discrete", "continuous"]
    rule: Rule
    exploration: Exploration
    network: tuple[str, ...]  # layers and activations in order
    hidden: int  # numbers that the network remembers for each agent; 0 for a feed-forward one
    last_action: bool  # whether an agent reads its last action, which its memory then holds behind the hidden state
    ids: int  # length of the one-hot code of its index that an agent reads; 0: it reads none
    scale: float  # observations are multiplied by this
    standardise: bool  # whether each input vector is standardised by its own mean and deviation, the id included
    by_role: bool  # whether the role in the observation chooses the matrices (unit types), not the agent
    roles: int
    identity: tuple[int, ...]  # which matrices each agent of the file uses, where roles do not decide
    shared_observation: bool = False  # every agent observes the same vector
    observation_names: tuple[str, ...] = ()
    observation_meaning: tuple[str, ...] = ()  # with units
    action_names: tuple[str, ...] = ()
    version: str = ""  # of prism-marl
    environment: str = ""  # version of the environment's rules
    run: str = ""  # digest of the run's settings
    seed: int = 0
    steps: int = 0  # environment steps behind these numbers
    checkpoint: int = 0
    finished: bool = True  # whether the run had reached its end

    @property
    def team(self) -> int:
        """Agents in the file."""
        return self.agents if self.agent is None else 1

    @property
    def memory(self) -> int:
        """Numbers that each agent remembers: its hidden state, then a one-hot code of its last action."""
        return self.hidden + self.last_action * self.actions

    @property
    def inputs(self) -> int:
        """Length of one agent's input vector."""
        return self.observation + self.last_action * self.actions + self.ids

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of all layers that have arrays, in order."""
        found: list[str] = []
        for step in self.network:
            found += CORE_LAYERS if step == CORE else () if step in ACTIVATIONS else (step,)
        return tuple(found)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1) + "\n"

    @staticmethod
    def from_json(text: str, source: str) -> "Contract":
        """Read what ``to_json`` wrote. ``source`` names the file in complaints."""
        try:
            data = parse_object(text)
        except (ValueError, RecursionError, UserError):
            data = None
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise UserError(f"{source} is not a policy of prism-marl (format '{FORMAT}'); export the run again", code=1)
        hints, values = get_type_hints(Contract), {}
        for field in dataclasses.fields(Contract):
            if field.name in data:
                values[field.name] = _checked(data.pop(field.name), hints[field.name], field.name, source)
            elif field.default is dataclasses.MISSING:
                raise _strange(source, field.name)
        for name in data:
            raise _strange(source, name)
        contract = Contract(**values)
        contract._check(source)
        return contract

    def _check(self, source: str) -> None:
        sizes = ("agents", "observation", "actions", "roles")
        for name in sizes:
            if not 1 <= getattr(self, name) <= LARGEST:
                raise _strange(source, name)
        if not 0 <= self.hidden <= LARGEST or (self.hidden > 0) != (CORE in self.network):
            raise _strange(source, "hidden")
        if self.agent is not None and not 0 <= self.agent < self.agents:
            raise _strange(source, "agent")
        if len(self.identity) != self.team or min(self.identity) < 0:
            raise _strange(source, "identity")
        if self.ids and not self.agents <= self.ids <= LARGEST:
            raise _strange(source, "ids")
        if not math.isfinite(self.scale):
            raise _strange(source, "scale")
        if (self.kind == "discrete") != (self.rule == "argmax") or (self.last_action and self.kind != "discrete"):
            raise _strange(source, "rule")
        names = [step for step in self.network if step not in (*ACTIVATIONS, CORE)]
        plain = all(name.isidentifier() and name not in CORE_LAYERS for name in names)
        if not names or not plain or len(set(names)) < len(names) or self.network.count(CORE) > 1:
            raise _strange(source, "network")
        for name, size in (("observation", self.observation), ("action", self.actions)):
            if len(getattr(self, f"{name}_names")) not in (0, size):
                raise _strange(source, f"{name}_names")


def _strange(source: str, name: str) -> UserError:
    return UserError(f"{source}: its field '{name}' is missing, unknown or impossible; export the run again", code=1)


def _checked(value: Any, kind: Any, name: str, source: str) -> Any:
    """The value, if it has the type that its annotation says."""
    origin = get_origin(kind)
    if origin is Literal:
        if value in get_args(kind):
            return value
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(_checked(item, get_args(kind)[0], name, source) for item in value)
    elif origin is not None:  # a number or nothing
        return None if value is None else _checked(value, int, name, source)
    elif type(value) is kind or (kind is float and type(value) is int):
        return kind(value)
    raise _strange(source, name)
