"""The axis legend and the records that travel between environments, learners and the runner.

Axes: ``*b`` batch (any number) · ``a`` agents · ``o`` features of one observation · ``s`` features of the state
· ``u`` actions · ``i``/``o`` fan-in and fan-out of a layer · ``m`` identities · ``r`` singular values ·
``k`` masked singular values · ``t`` time. The agent axis is always last but one and never folded into the batch.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from jaxtyping import Array, Bool, Float, Int

ActionKind = Literal["discrete", "continuous"]
RewardKind = Literal["team", "agent"]


class Observation(NamedTuple):
    """What the team observes before it acts."""

    local: Float[Array, "*b a o"]  # what each agent observes
    state: Float[Array, "*b s"]  # what the centralised learner observes
    avail: Bool[Array, "*b a u"]  # legal actions; continuous: all true, all false of an agent whose part has ended
    role: Int[Array, "*b a"]  # the current role of each agent: its index, or its unit type in battles


class Step(NamedTuple):
    """What one step of the environment returns."""

    obs: Observation
    reward: Float[Array, "*b"]  # the team's
    terminated: Bool[Array, "*b"]  # the task ended: do not bootstrap
    truncated: Bool[Array, "*b"]  # the time limit was reached: bootstrap from ``obs``, which is the last observation
    metrics: dict[str, Float[Array, "*b"]]
    agent_reward: Float[Array, "*b a"] | None = None  # each agent's own, where ``EnvSpec.reward`` is "agent"


@dataclass(frozen=True)
class EnvSpec:
    """Everything that a network, a learner or a report needs to know about a task, as plain numbers."""

    name: str
    agents: int
    observation: int  # length of one agent's observation
    state: int  # length of the global state
    actions: int  # number of discrete actions, or length of one agent's action vector
    roles: int  # number of different values of ``Observation.role``
    horizon: int  # time limit in steps
    kind: ActionKind = "discrete"
    version: str = "1"  # must change when returns are no longer comparable
    metrics: tuple[str, ...] = ()  # keys of ``Step.metrics``
    storage: str = "float32"  # smallest dtype that holds ``local`` and ``state`` without loss
    magnitude: float = 1.0  # largest absolute value in ``local`` and ``state``
    state_is_joint: bool = False  # the state is the concatenation of all agents' observations
    shared_observation: bool = False  # every agent observes the state, so replay need not store ``local``
    reward: RewardKind = "team"  # "agent": every agent has a reward of its own besides the team's
    flags: tuple[int, ...] = ()  # features of an observation that are only ever 0 or 1: replay keeps a bit of each
    state_flags: tuple[int, ...] = ()  # the same of the state
    places: int = 0  # agents that observations and ids have room for, so that a team can grow; 0: as many as there are

    @property
    def ids(self) -> int:
        """Length of the one-hot code of an agent's index."""
        return max(self.places, self.agents)
