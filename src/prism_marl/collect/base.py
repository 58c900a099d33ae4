"""What the trainer asks of a collector: to play with a learner's policy for learning, measuring and watching."""

from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from prism_marl.learners.base import Clock, Learner, Mode, Trajectory
from prism_marl.scene import Scene

SIDE_BY_SIDE = 20  # episodes of one seed at once under the rule "first", as in the reference

LOST = "lost"  # in what an evaluation returns: how many episodes of each seed were lost with their game, if any were

Rule = Literal["exact", "first"]
"""Which episodes an evaluation counts: exactly so many, or the first so many to end of some that are played side by
side without a pause (all that end in the same step count)."""


class Summary(NamedTuple):
    """What a collection tells about itself; one number for each seed."""

    steps: Int[Array, " n"]  # environment steps that count
    finite: dict[str, Bool[Array, " n"]]  # whether all rewards and all observations were finite, before any cast


class Collector(Protocol):
    """Plays all seeds of a run, the first axis of everything."""

    compiled: ClassVar[bool]  # ``collect`` can be traced: the trainer fuses collecting and updating in one loop

    def open(self, learner: Learner) -> None:
        """Build what training plays, so that a game which cannot be built is known before a run begins."""
        ...

    def reset(self, learner: Learner, policy: Any, keys: Key[Array, " n"]) -> Any:
        """Where rows of "steps" stand at the start; () for "episodes"."""
        ...

    def collect(
        self, learner: Learner, policy: Any, env: Any, keys: Any, steps: Any, clock: Clock, mode: Mode
    ) -> tuple[Any, Trajectory, Summary]:
        """One collection of all seeds, with their keys and environment steps."""
        ...

    def evaluate(
        self, learner: Learner, policy: Any, evaluation: Int[Array, ""], episodes: int, rule: Rule
    ) -> dict[str, Any]:
        """Means over greedy episodes, one number for each seed. Lost episodes are left out and counted as ``LOST``; a
        seed that lost them all has NaN."""
        ...

    def visit(self, learner: Learner, policy: Any, evaluation: Int[Array, ""], steps: Any, number: int) -> Trajectory:
        """``number`` whole episodes of every seed, as training plays after so many steps, with all that was seen:
        [n, t, b, ...]. They are apart from those of training."""
        ...

    def watch(
        self, learner: Learner, policy: Any, seed: int, number: int, states: list[Any] | None = None
    ) -> tuple[list[Scene], float]:
        """One greedy episode of one seed (by its index) as drawings, and its return; no drawings where the environment
        has none. ``states`` collects what a camera needs."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """What a checkpoint needs besides ``env``."""
        ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...

    def dropped(self) -> int | None:
        """Episodes lost so far with a game that died or hung; None where none can be."""
        ...

    def close(self) -> None:
        """Let go of whatever the environments hold; nothing can be played afterwards."""
        ...


def evaluation_key(number: Int[Array, ""], evaluation: Int[Array, ""]) -> Key[Array, ""]:
    """The episodes of one seed's evaluation, apart from those it trains on."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(number), 0x5EED), evaluation)


def seed_numbers(first: int, seeds: int) -> Int[Array, " n"]:
    return jnp.arange(first, first + seeds, dtype=jnp.uint32)
