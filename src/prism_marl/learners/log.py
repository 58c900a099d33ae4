"""What a learner reports while it learns: sums of its metrics, and where a number first was not finite.

The compiled loop only compares and selects scalars; Python reads the counters once for each piece of training.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

NEVER = -1
GIVEN = ("observation", "reward")  # terms that come from the environment, before anything is learned from them

Faults = dict[str, Int[Array, "*n"]]
"""For every term the environment step at which it was first not finite, or ``NEVER``."""


def no_faults(terms: Iterable[str]) -> Faults:
    """Counters of one seed before anything has happened."""
    return {term: jnp.full((), NEVER, jnp.int32) for term in sorted({*terms, *GIVEN})}


def record_faults(faults: Faults, finite: Mapping[str, Bool[Array, "*n"]], step: Int[Array, "*n"]) -> Faults:
    """The counters after a look at some terms; the first time stays."""
    return faults | {
        term: jnp.where((faults[term] == NEVER) & ~fine, step, faults[term]).astype(jnp.int32)
        for term, fine in finite.items()
    }


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether every float of a pytree is finite."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in floats])) if floats else jnp.asarray(True)


class Log(NamedTuple):
    """One seed's report. Every update adds to it in order: sums that are added later would have other last bits."""

    sums: dict[str, Array]  # of the metrics, since the last evaluation
    faults: Faults

    def add(self, metrics: Mapping[str, Array], step: Int[Array, ""], weight: int = 1) -> "Log":
        """Add the metrics of an update; one that happens only every ``weight`` updates counts so many times."""
        sums = self.sums | {name: self.sums[name] + weight * value for name, value in metrics.items()}
        return self._replace(sums=sums).check({name: jnp.isfinite(value) for name, value in metrics.items()}, step)

    def check(self, finite: Mapping[str, Bool[Array, ""]], step: Int[Array, ""]) -> "Log":
        """Note which terms are not finite at this environment step."""
        return self._replace(faults=record_faults(self.faults, finite, step))


def empty_log(metrics: Iterable[str], checks: Iterable[str] = ()) -> Log:
    """Nothing summed and no fault; ``checks`` are terms that are watched without being metrics."""
    names = list(metrics)
    return Log({name: jnp.zeros(()) for name in names}, no_faults([*names, *checks]))
