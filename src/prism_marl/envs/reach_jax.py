"""The game of ``reach`` in JAX, compiled with the training program: ``reach_jax/<agents>``.

Rules, sizes and drawing are those of ``reach``; only the random starts differ.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from prism_marl.envs.reach import HORIZON, START, aims, drawing, outcome, points, reach_spec
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step


class ReachState(NamedTuple):
    """One episode."""

    drift: Float[Array, ""]
    clock: Int[Array, ""]
    before: Float[Array, ""]  # the drift at which ``played`` was played, for the drawing
    played: Float[Array, "a 2"]


@dataclass(frozen=True)
class ReachJax:
    """The task as pure functions."""

    agents: int

    @property
    def spec(self) -> EnvSpec:
        return reach_spec(str(self.agents), "reach_jax")

    @property
    def _points(self) -> np.ndarray:
        first = points(self.agents)
        return np.stack([first, -first], axis=-1)

    def reset(self, key: Key[Array, ""]) -> tuple[ReachState, Observation]:
        drift = jax.random.uniform(key, minval=-START, maxval=START)
        state = ReachState(drift, jnp.zeros((), jnp.int32), drift, jnp.zeros((self.agents, 2)))
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: ReachState, action: Float[Array, "a 2"]) -> tuple[ReachState, Step]:
        del key  # only the start is random
        after, clock = outcome(state.drift, action, jnp.asarray(self._points)), state.clock + 1
        state = ReachState(after.drift, clock, state.drift, action)
        return state, Step(self._observe(state), after.reward, after.lost, (clock >= HORIZON) & ~after.lost, {})

    def scene(self, state: ReachState) -> Scene:
        """A drawing of a state on the host."""
        clock = int(state.clock)
        aim = aims(np.asarray(state.before if clock else state.drift), self._points)
        return drawing(self.agents, clock, float(state.drift), aim, np.asarray(state.played) if clock else None)

    def _observe(self, state: ReachState) -> Observation:
        """The drift and two constants, as in ``reach``."""
        seen = jnp.stack([state.drift, jnp.ones(()), -jnp.ones(())])
        local, spec = jnp.broadcast_to(seen, (self.agents, 3)), self.spec
        avail: Any = jnp.ones((self.agents, spec.actions), bool)
        return Observation(local, seen, avail, jnp.arange(self.agents))


def make_reach_jax(variant: str) -> ReachJax:
    """Build ``reach_jax/<variant>``, where the variant is the number of agents."""
    return ReachJax(reach_spec(variant, "reach_jax").agents)
