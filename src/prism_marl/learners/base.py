"""What the trainer asks of a learner, and the records that travel between collectors, learners and the trainer.

A learner is a set of pure functions over one seed's state; the trainer runs all seeds side by side with ``jax.vmap``
(the axis is named ``SEEDS``). ``Clock`` has no seed axis, so that a ``lax.cond`` on it stays a branch and never
becomes a select that computes both sides.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.learners.log import Log
from prism_marl.networks.inputs import Inputs
from prism_marl.sharing.base import Experience, Sharing
from prism_marl.types import EnvSpec, Observation

SEEDS = "seeds"  # name of the axis along which seeds train side by side
Mode = Literal["random", "explore", "greedy"]
"""How to act: uniformly over the legal actions, as training explores, or as well as the policy can."""


class Clock(NamedTuple):
    """Counters that are the same for all seeds."""

    iteration: Int[Array, ""]  # collections so far; the trainer adds 1 before ``update``
    summed: Int[Array, ""]  # updates behind ``Log.sums``
    own: Any  # counters of the learner, as ``Learner.counters`` begins them


@dataclass(frozen=True)
class Collection:
    """What a learner wants to be collected."""

    unit: Literal["episodes", "steps"]  # every row from a reset to its end, or rows that go on and restart inside
    length: int  # steps of every row in one collection; for episodes the horizon
    warmup: int = 0  # environment steps with random actions before learning
    warmup_on_top: bool = False  # they come on top of the budget, as some references count; else they are part of it
    overlap: bool = False  # on the host: play with the policy of one collection before while updates run


class Trajectory(NamedTuple):
    """What one collection brings: [n, t, b, ...], and [t, b, ...] for the learner. What a learner's ``template`` gives
    a length of 0, or None, is not recorded."""

    obs: Observation  # of episodes t + 1 slots, of steps t
    next_obs: Observation | None  # of steps: what followed, from before any reset
    action: Array
    reward: Float[Array, "*b"]  # the team's
    agent_reward: Float[Array, "*b a"] | None
    terminated: Bool[Array, "*b"]  # the task ended: do not bootstrap
    truncated: Bool[Array, "*b"] | None  # the clock ran out
    valid: Bool[Array, "*b"]  # the step was really taken; False throughout an episode that was lost
    memory: Any = ()  # of steps: what the policy remembered before slot 0
    extras: Any = ()  # what ``act`` returned besides the action


@runtime_checkable
class NumpyPolicy(Protocol):
    """A policy on the host, for learners whose networks are too small to ask an accelerator at every step."""

    def noise(self, rng: np.random.Generator, steps: int, rows: int, mode: Mode) -> np.ndarray:
        """Random numbers of one seed for one collection: [t, b, ...]."""
        ...

    def __call__(
        self, policy: Any, seeds: slice, local: np.ndarray, state: np.ndarray, noise: np.ndarray | None, mode: Mode
    ) -> Any:
        """Actions [n, b, a, ...] of some seeds, or a pair of these and of what ``Learner.act`` calls extras."""
        ...


@runtime_checkable
class Learner(Protocol):
    """A learning algorithm for one task and one sharing method."""

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def rows(self) -> int:
        """Environments of one seed that are played side by side."""
        ...

    @property
    def collection(self) -> Collection: ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of all that ``update`` adds to the log."""
        ...

    @property
    def checks(self) -> tuple[str, ...]:
        """Terms besides the metrics that ``update`` watches for numbers that are not finite."""
        ...

    def init(self, key: Key[Array, ""]) -> Any:
        """Fresh state, which holds the training key."""
        ...

    def counters(self) -> Any:
        """``Clock.own`` at the start."""
        ...

    def template(self) -> Trajectory:
        """Shapes and types of what one row brings: [t, ...]."""
        ...

    def buffer(self) -> Any:
        """An empty buffer; () if nothing reads it. A learner without one keeps an ``Experience`` ring if its sharing
        method looks at data."""
        ...

    def key(self, state: Any, clock: Clock, purpose: Literal["collect", "change"]) -> tuple[Any, Key[Array, ""]]:
        """A key for one collection, or for one change of the agents, and the state after it."""
        ...

    def policy(self, state: Any) -> Any:
        """All that ``act`` reads, with one dense matrix for each identity."""
        ...

    def numpy(self) -> NumpyPolicy | None:
        """The same policy on the host, where that is faster."""
        ...

    def memory(self, policy: Any, *batch: int) -> Any:
        """What a policy remembers before its first step."""
        ...

    def act(
        self, policy: Any, memory: Any, obs: Observation, key: Key[Array, ""], step: Int[Array, ""], mode: Mode
    ) -> tuple[Any, Array, Any]:
        """Memory, actions and extras for a batch of observations; ``step`` is the environment step."""
        ...

    def add(self, buffer: Any, batch: Trajectory) -> Any:
        """The buffer with a collection in it. It stands apart from ``update``, because a buffer that travels through a
        ``lax.cond`` would be copied."""
        ...

    def update(
        self, state: Any, buffer: Any, batch: Trajectory, log: Log, step: Int[Array, ""], clock: Clock
    ) -> tuple[Any, Log, Clock]:
        """One round of updates, or none if it is not due."""
        ...

    def build_agent(self, key: Key[Array, ""]) -> Any:
        """A fresh agent network: what trains, and what the footprint counts."""
        ...

    def agent(self, state: Any) -> Any:
        """The agent network, for changes by the sharing method, spectra and export."""
        ...

    def with_agent(self, state: Any, agent: Any) -> Any:
        """The state with another agent network; targets get its labels and masks at once, its weights as always."""
        ...

    def experience(self, buffer: Any) -> Experience:
        """The latest data, for sharing methods that look at it."""
        ...

    def row(self, step: int) -> dict[str, float]:
        """What a row of training metrics says about a step, apart from the means."""
        ...


@runtime_checkable
class Hosted(Protocol):
    """A learner whose policy remembers and can act on the host all the same."""

    def on_host(self, rows: int) -> Any:
        """How to act there (``numpy_values.NumpyValues``); None where a compiled program is faster for so many rows."""
        ...

    def epsilon(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Rate of exploring at an environment step."""
        ...


@dataclass(frozen=True)
class Settings(abc.ABC):
    """A learner's settings: a frozen dataclass whose field comments are the help text."""

    label: ClassVar[str]  # in sentences
    kinds: ClassVar[tuple[str, ...]]  # of actions that it can learn
    eval_rule: ClassVar[Literal["exact", "first"]] = "exact"  # how the reference evaluates: see ``run.eval_rule``

    algorithm: str

    @abc.abstractmethod
    def learner(self, sharing: Sharing, spec: EnvSpec, *, width: int, rows: int = 1, steps: int = 0) -> Learner:
        """The learner; ``rows`` environments of each seed train for ``steps`` environment steps."""

    @abc.abstractmethod
    def validate(self, spec: EnvSpec, envs: int) -> None:
        """Raises ``UserError`` for what would otherwise fail inside the compiler."""

    def warning(self, steps: int) -> str:
        """A sentence about what works in ``steps`` environment steps, but hardly as it is meant; empty if nothing."""
        del steps
        return ""


class Deployment(NamedTuple):
    """How a trained policy turns observations into actions outside of training: a learner says it once, and every
    format of an exported policy follows."""

    agent: Any  # the trained network, which names its layers in order, as ``chain``
    inputs: Inputs  # what is appended to the observation
    rule: Literal["argmax", "direct"]  # the best legal entry, or the outputs cut to [-1, 1]
    exploration: Literal["epsilon", "noise", "softmax"]  # how training explores around that
    amount: Any = 0.0  # rate of random actions; deviation of the noise, [*identities, actions] or one for all
    scale: float = 1.0  # observations are multiplied by this
    standardise: bool = False  # each input vector by its own mean and deviation


@runtime_checkable
class Deployable(Protocol):
    """A learner whose policy can be exported."""

    def deployment(self, state: Any) -> Deployment: ...


class Signal(NamedTuple):
    """What an agent network learns from, in two steps, so that the part of each agent can be told from the others'."""

    apply: Callable[[Any], Array]  # the agent network to its outputs [..., a, u]
    cost: Callable[[Array], Array]  # outputs to the loss of the team; its slope is what each output is pulled by


@runtime_checkable
class Signalling(Protocol):
    """A learner that says what its agents learn from, so that their gradients can be compared."""

    def signal(self, state: Any, episodes: Trajectory) -> Signal:
        """The task's loss on whole episodes [t, b, ...], which have a slot more of observations than steps."""
        ...


def shape(*sizes: int, dtype: Any = "float32") -> Any:
    """A leaf of a template."""
    return jax.ShapeDtypeStruct(sizes, np.dtype(dtype))
