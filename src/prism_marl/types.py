"""The axis legend and the records that travel between environments, learners and the runner.

Axes: ``*b`` batch (any number) · ``a`` agents · ``o`` features of one observation · ``s`` features of the state
· ``u`` actions · ``i``/``o`` fan-in and fan-out of a layer · ``m`` identities · ``r`` singular values ·
``k`` masked singular values · ``t`` time. The agent axis is always last but one and never folded into the batch.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from jaxtyping import Array, Bool, Float, Int

ActionKind = Literal["discrete", "continuous"]


class Observation(NamedTuple):
    """What the team sees before it acts."""

    local: Float[Array, "*b a o"]  # what each agent sees
    state: Float[Array, "*b s"]  # what the centralised trainer sees
    avail: Bool[Array, "*b a u"]  # legal actions (all true where continuous)
    role: Int[Array, "*b a"]  # which kind of agent this is now: agent index, or unit type in battles


class Step(NamedTuple):
    """What one step of the environment brings back."""

    obs: Observation
    reward: Float[Array, "*b"]  # one team reward
    terminated: Bool[Array, "*b"]  # the task ended: do not bootstrap
    truncated: Bool[Array, "*b"]  # the clock ran out: bootstrap from the final observation, which is kept
    metrics: dict[str, Float[Array, "*b"]]


@dataclass(frozen=True)
class EnvSpec:
    """Everything a network, a learner or a report needs to know about a task, as plain numbers."""

    name: str
    agents: int
    observation: int  # length of one agent's observation
    state: int  # length of the global state
    actions: int  # number of discrete actions, or length of one agent's action vector
    roles: int  # how many different values ``Observation.role`` takes
    horizon: int  # steps until the clock runs out
    kind: ActionKind = "discrete"
    version: str = "1"  # changes whenever returns stop being comparable
    metrics: tuple[str, ...] = ()  # keys of ``Step.metrics``
    storage: str = "float32"  # smallest dtype that holds ``local`` and ``state`` without loss
    magnitude: float = 1.0  # largest size of a number in ``local`` and ``state``
    state_is_joint: bool = False  # the state is the observations of all agents, one after the other
    shared_observation: bool = False  # every agent observes the state itself, so ``local`` need not be stored
