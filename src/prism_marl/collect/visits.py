"""Episodes that are played to measure how agents differ: everything is recorded, and nothing is learned from them."""

from typing import Any

import jax
from jaxtyping import Array, Int, Key

from prism_marl.learners.base import Learner, Trajectory, shape
from prism_marl.types import EnvSpec, Observation

EPISODES = 4  # of each seed, where they are not too large
NUMBERS = 2**20  # in the observations of the episodes of one seed


def visits(spec: EnvSpec) -> int:
    """How many episodes of each seed are played."""
    return max(1, min(EPISODES, NUMBERS // (spec.horizon * spec.agents * spec.observation)))


def visiting_key(number: Int[Array, ""], evaluation: Int[Array, ""]) -> Key[Array, ""]:
    """The episodes of one seed's measurement, apart from those it trains on and from those of evaluations."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(number), 0x715E), evaluation)


def whole_template(learner: Learner) -> Trajectory:
    """Shapes of one episode with all that there is to see."""
    spec = learner.spec
    slots, steps, discrete = spec.horizon + 1, spec.horizon, spec.kind == "discrete"
    flag, each = shape(steps, dtype=bool), (steps, spec.agents)
    return Trajectory(
        obs=Observation(
            local=shape(slots, spec.agents, spec.observation),
            state=shape(slots, spec.state),
            avail=shape(slots, spec.agents, spec.actions, dtype=bool),
            role=shape(slots, spec.agents, dtype="int32"),
        ),
        next_obs=None,
        action=shape(*each, dtype="int32") if discrete else shape(*each, spec.actions),
        reward=shape(steps),
        agent_reward=shape(*each) if spec.reward == "agent" else None,
        terminated=flag,
        truncated=flag,
        valid=flag,
        extras=jax.tree.map(lambda leaf: shape(steps, *leaf.shape[1:], dtype=leaf.dtype), learner.template().extras),
    )


def as_dict(episodes: Trajectory) -> dict[str, Any]:
    """Plain dicts, which kept programs can return."""
    return {**episodes._asdict(), "obs": episodes.obs._asdict()}


def from_dict(found: dict[str, Any]) -> Trajectory:
    """The opposite."""
    return Trajectory(**{**found, "obs": Observation(**found["obs"])})
