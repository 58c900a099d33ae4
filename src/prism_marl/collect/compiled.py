"""Whole episodes, many at once, in one compiled loop over time. Nothing here runs in Python while it plays."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.envs.base import JaxEnv
from prism_marl.learners.qmix import Episode, QMixLearner
from prism_marl.networks.recurrent import RecurrentAgent
from prism_marl.sharing.base import RoleLinear
from prism_marl.sharing.fups import SharedLinear
from prism_marl.sharing.nops import IndependentLinear
from prism_marl.types import Observation

LOOK_EVERY = 10  # steps between two looks at whether anyone is still playing


class Summary(NamedTuple):
    """What an evaluation reports about each episode."""

    returns: Float[Array, " b"]
    length: Float[Array, " b"]
    metrics: dict[str, Float[Array, " b"]]  # at the last real step
    sound: dict[str, Bool[Array, " b"]]  # whether all rewards, all observations of the episode were finite


def materialise(network: Any) -> Any:
    """The same network with one plain matrix per identity: acting then costs the same for every method."""

    def plain(layer):
        if not isinstance(layer, RoleLinear) or isinstance(layer, SharedLinear):
            return layer
        return IndependentLinear(weight=layer.dense(), bias=layer.dense_bias(), identities=layer.identities)

    return jax.tree.map(plain, network, is_leaf=lambda node: isinstance(node, RoleLinear))


class _Carry(NamedTuple):
    state: Any
    obs: Observation
    hidden: Array
    last_action: Array
    alive: Array
    summary: Summary


def play(
    env: JaxEnv,
    learner: QMixLearner,
    agents: RecurrentAgent,
    keys: Key[Array, " n"],
    epsilon: Float[Array, " n"] | float,
    number: int,
) -> tuple[Episode, Summary]:
    """Play ``number`` episodes of each of n seeds side by side: episodes [n, b, t, ...] and their summaries [n, b].

    Finished ones idle until all have ended, marked as not valid. The loop stands outside ``vmap``: whether anyone is
    still playing has one answer for all seeds, so it really stops. What nobody played is zeros.
    """
    key_reset, key_steps = jnp.unstack(jax.vmap(jax.random.split)(keys), axis=1)
    horizon, rates = env.spec.horizon, jnp.broadcast_to(jnp.asarray(epsilon, jnp.float32), keys.shape)
    each_step = jnp.swapaxes(jax.vmap(lambda key: jax.random.split(key, horizon))(key_steps), 0, 1)
    block = max(size for size in range(1, LOOK_EVERY + 1) if horizon % size == 0)
    agents = jax.vmap(materialise)(agents)
    one = jax.vmap(functools.partial(_advance, env, learner))

    @jax.jit  # two places use it, and it is traced once
    def some(carry: _Carry, t: Int[Array, ""]):
        now = jax.lax.dynamic_slice_in_dim(each_step, t, block)
        return jax.lax.scan(lambda carry, keys: one(agents, carry, keys, rates), carry, now)

    def unfinished(loop):
        t, carry, _ = loop
        return (t < horizon) & jnp.any(carry.alive)

    def advance(loop):
        t, carry, record = loop
        carry, steps = some(carry, t)
        put = jax.lax.dynamic_update_slice_in_dim
        return t + block, carry, jax.tree.map(lambda held, new: put(held, new, t, 0), record, steps)

    start = jax.vmap(lambda agent, key: _start(env, agent, key, number))(agents, key_reset)
    shapes = jax.eval_shape(some, start, jnp.int32(0))[1]
    record = jax.tree.map(lambda leaf: jnp.zeros((horizon, *leaf.shape[1:]), leaf.dtype), shapes)
    played, carry, record = jax.lax.while_loop(unfinished, advance, (jnp.int32(0), start, record))
    slots = _slots(record[0], carry.obs, played)
    return _episode(learner, slots, record), carry.summary._replace(sound=_sound(learner, slots, record))


def watch(env: JaxEnv, learner: QMixLearner, agent: RecurrentAgent, key: Key[Array, ""]) -> tuple[Any, Summary, Array]:
    """One greedy episode with every environment state kept: states [t+1, ...], its summary, its length."""
    key_reset, key_steps = jax.random.split(key)
    agent = materialise(agent)
    start = _start(env, agent, key_reset, 1)

    def step(carry: _Carry, key):
        carry, _ = _advance(env, learner, agent, carry, key, 0.0)
        return carry, carry.state

    carry, states = jax.lax.scan(step, start, jax.random.split(key_steps, env.spec.horizon))
    frames = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest])[:, 0], start.state, states)
    return frames, carry.summary, carry.summary.length[0].astype(jnp.int32)


def _start(env: JaxEnv, agent: RecurrentAgent, key, number: int) -> _Carry:
    spec = env.spec
    state, obs = jax.vmap(env.reset)(jax.random.split(key, number))
    zeros = jnp.zeros(number)
    return _Carry(
        state=state,
        obs=obs,
        hidden=agent.initial(number, spec.agents),
        last_action=jnp.full((number, spec.agents), -1, jnp.int32),
        alive=jnp.ones(number, bool),
        summary=Summary(zeros, zeros, dict.fromkeys(spec.metrics, zeros), {}),
    )


def _advance(env: JaxEnv, learner: QMixLearner, agent: RecurrentAgent, carry: _Carry, key, epsilon):
    key_act, key_env = jax.random.split(key)
    hidden, action = learner.act(agent, carry.hidden, carry.obs, carry.last_action, key_act, epsilon)
    state, step = jax.vmap(env.step)(jax.random.split(key_env, carry.alive.size), carry.state, action)
    reward = jnp.where(carry.alive, step.reward, 0.0)
    ended = step.terminated | step.truncated if learner.settings.time_limit_ends else step.terminated
    record = (carry.obs, action, reward, ended & carry.alive, carry.alive)
    summary = Summary(
        returns=carry.summary.returns + reward,
        length=carry.summary.length + carry.alive,
        metrics={
            name: jnp.where(carry.alive, step.metrics[name], held) for name, held in carry.summary.metrics.items()
        },
        sound={},
    )
    alive = carry.alive & ~(step.terminated | step.truncated)
    return _Carry(state, step.obs, hidden, action.astype(jnp.int32), alive, summary), record


def _slots(obs: Observation, last: Observation, played: Int[Array, ""]) -> Observation:
    """Observations [t + 1, n, b, ...]; ``last`` is what was seen after the last step that was played."""

    def with_last(along, final):
        slots = jnp.concatenate([along, jnp.zeros_like(final)[None]])
        return jax.lax.dynamic_update_slice_in_dim(slots, final[None], played, 0)

    return jax.tree.map(with_last, obs, last)


def _sound(learner: QMixLearner, slots: Observation, steps) -> dict[str, Array]:
    """Of episodes [n, b], before they are stored: there, where numbers are whole, a NaN would become one of them."""
    _, _, reward, _, valid = steps
    reached = jnp.concatenate([jnp.ones_like(valid[:1]), valid])  # what a finished episode idles on is of no account
    finite = jnp.all(jnp.isfinite(slots.local), axis=(-2, -1))
    if not learner.spec.state_is_joint:
        finite &= jnp.all(jnp.isfinite(slots.state), axis=-1)
    return {"observation": jnp.all(finite | ~reached, axis=0), "reward": jnp.all(jnp.isfinite(reward), axis=0)}


def _episode(learner: QMixLearner, slots: Observation, steps) -> Episode:
    """Records [t, n, b, ...] as episodes [n, b, t, ...] in the types in which they are stored."""
    _, action, reward, terminated, valid = steps
    state = slots.state[..., :0] if learner.spec.state_is_joint else slots.state
    episode = Episode(slots.local, state, slots.avail, slots.role, action, reward, terminated, valid)
    shapes = learner.empty_episode()
    return jax.tree.map(lambda leaf, shape: jnp.moveaxis(leaf, 0, 2).astype(shape.dtype), episode, shapes)


def seed_of(network: Any, index: int) -> Any:
    """One seed's network out of a stack."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, network)
