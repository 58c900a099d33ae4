"""What errors of action values cost, and what the agents learn from it."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from prism_marl.learners.actions import UNAVAILABLE, pick
from prism_marl.learners.base import Signal, Trajectory
from prism_marl.learners.packed import Rows, laid_out
from prism_marl.learners.value_state import Networks, ValueState

if TYPE_CHECKING:
    from prism_marl.learners.value import ValueLearner


def costs(
    learner: "ValueLearner",
    outputs: tuple[Array, Array],
    networks: tuple[Networks, Networks],
    episodes: Trajectory,
    rows: Rows,
    state: Array,
) -> tuple[Array, tuple[Array, Array]]:
    """Sums over the steps of some rows: what the errors cost, the values, and how many there are. ``outputs`` are the
    action values of the agents, and of their targets; ``networks`` are online and target."""
    (values, target_values), (online, target) = outputs, networks
    best = jnp.argmax(jnp.where(rows.obs.avail, jax.lax.stop_gradient(values), UNAVAILABLE), axis=-1)
    acted = len(rows.action)
    total = learner.mix(online, pick(values[:acted], rows.action), state[:acted])
    bootstrap = learner.mix(target, pick(target_values, best), state)
    returns = rows.rows(learner.returns(episodes, rows.block(bootstrap)))
    error = total - jax.lax.stop_gradient(returns)
    cost = (0.5 if learner.settings.half_loss else 1.0) * learner.cost(error)
    valid = rows.valid.reshape(*rows.valid.shape, *[1] * (total.ndim - 2))  # the same for all agents
    cost, value, steps = (jnp.sum(jnp.where(valid, leaf, 0.0)) for leaf in (cost, total, jnp.ones_like(total)))
    return cost, (value, steps)


def signal(learner: "ValueLearner", state: ValueState, episodes: Trajectory) -> Signal:
    """The mean cost on whole episodes, with targets and mixer as they are."""
    assert episodes.truncated is not None
    if learner.settings.time_limit_ends:
        episodes = episodes._replace(terminated=episodes.terminated | episodes.truncated)
    if learner.settings.standardise_rewards:
        episodes = state.scale.standardised(episodes)[1]
    rows: Any = laid_out(episodes, None)
    x, seen = learner.read(rows.obs, rows.last)
    role, networks = rows.obs.role, (state.online, state.target)
    aim = state.target.agent.unroll(x, role)

    def cost(values: Array) -> Array:
        total, (_, steps) = costs(learner, (values, aim), networks, episodes, rows, seen)
        return total / jnp.maximum(steps, 1.0)

    return Signal(lambda agent: agent.unroll(x, role), cost)
