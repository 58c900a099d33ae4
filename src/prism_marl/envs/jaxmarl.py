"""Any JaxMARL environment with discrete actions: ``jaxmarl/<id>[?name=value&...]``, and ``jaxmarl/smax-<scenario>``.

JaxMARL uses dicts by agent name and resets automatically; here the agents are an axis and nothing resets. Shorter
observations are padded with zeros, smaller action sets with actions that are never legal.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from prism_marl.envs.base import require
from prism_marl.envs.settings import read_settings, with_setting
from prism_marl.errors import UserError, nearest
from prism_marl.types import EnvSpec, Observation, Step

LONGEST = 100_000  # steps, because whole episodes are stored
SMAX, SMAX_ENV = "smax-", "HeuristicEnemySMAX"
STATE = "world_state"  # key of JaxMARL's observations that holds the state, if an environment has one
REWARDS = ("agent", "sum", "mean")


class State(NamedTuple):
    """JaxMARL's own state and the number of steps."""

    inner: Any
    clock: Int[Array, ""]


@dataclass(frozen=True, eq=False)
class JaxMARL:
    """One environment of JaxMARL as one team."""

    env: Any
    spec: EnvSpec
    sizes: tuple[int, ...]  # actions of each agent
    reward: str = "sum"  # how the team's reward is computed from the agents' rewards; "agent": these, and their sum
    smax: bool = False

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        observed, inner = self.env.reset(key)
        return State(inner, jnp.int32(0)), self._observation(observed, inner)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        """JaxMARL reports one ``done``: at the time limit it counts as truncation, before that as termination."""
        chosen = {agent: action[index] for index, agent in enumerate(self.env.agents)}
        observed, inner, rewards, dones, _ = self.env.step_env(key, state.inner, chosen)
        clock = state.clock + 1
        late = clock >= self.spec.horizon
        each = jnp.stack([jnp.asarray(rewards[agent], jnp.float32) for agent in self.env.agents])
        reward = jnp.mean(each) if self.reward == "mean" else jnp.sum(each)
        over = jnp.asarray(dones["__all__"], bool)
        # SMAX gives 1 for the victory, and less than 1 for everything before it
        metrics = {"battle_won": (over & (each[0] >= 1)).astype(jnp.float32)} if self.smax else {}
        return State(inner, clock), Step(
            self._observation(observed, inner),
            reward,
            terminated=over & ~late,
            truncated=late,
            metrics=metrics,
            agent_reward=each if self.reward == "agent" else None,
        )

    def _observation(self, observed: dict[str, Array], inner: Any) -> Observation:
        rows = [_padded(observed[agent].reshape(-1), self.spec.observation) for agent in self.env.agents]
        local = jnp.stack(rows).astype(jnp.float32)
        state = local.reshape(-1) if self.spec.state_is_joint else observed[STATE].reshape(-1).astype(jnp.float32)
        return Observation(local, state, self._avail(inner), self._role(inner))

    def _avail(self, inner: Any) -> Bool[Array, "a u"]:
        try:
            masks = self.env.get_avail_actions(inner)
        except NotImplementedError:  # raised by the base class; not every environment has this method
            masks = {agent: jnp.ones(size, bool) for agent, size in zip(self.env.agents, self.sizes, strict=True)}
        return jnp.stack([_padded(masks[agent].astype(bool), self.spec.actions) for agent in self.env.agents])

    def _role(self, inner: Any) -> Int[Array, " a"]:
        """The unit type in SMAX, the agent's index elsewhere."""
        if self.smax:
            return jnp.asarray(inner.state.unit_types[: self.spec.agents], jnp.int32)
        return jnp.arange(self.spec.agents)


def _padded(row: Array, size: int) -> Array:
    return jnp.pad(row, (0, size - row.size))


def make_jaxmarl(variant: str) -> JaxMARL:
    """Build ``jaxmarl/<id>[?name=value&...]``.

    ``horizon`` and ``reward`` are read here, other names go to JaxMARL. ``smax-<scenario>`` is SMAX with its scripted
    enemy, in which every agent receives the team's reward.
    """
    name = f"jaxmarl/{variant}"
    path, _, query = variant.partition("?")
    settings = read_settings(name, query)
    horizon = settings.pop("horizon", None)
    smax = path.startswith(SMAX)
    reward = settings.pop("reward", "mean" if smax else "agent")
    if reward not in REWARDS:
        raise UserError(f"task: reward of '{name}' must be 'agent', 'sum' or 'mean', not '{reward}'")
    package = require("jaxmarl", "jaxmarl")
    if smax:
        settings["scenario"] = _scenario(name, path.removeprefix(SMAX))
        path = SMAX_ENV
    elif path not in package.registered_envs:
        raise UserError(f"task: JaxMARL has no '{path}'; {nearest(path, [*package.registered_envs, 'smax-3m'])}")
    try:
        env = package.make(path, **settings)
    except (TypeError, ValueError, AssertionError, ImportError, NameError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"task: JaxMARL refuses '{name}' ({reason}); change what follows 'jaxmarl/'") from error
    return _wrap(name, env, horizon, reward, smax, f"jaxmarl {package.__version__}")


def _wrap(name: str, env: Any, horizon: Any, reward: str, smax: bool, version: str) -> JaxMARL:
    """Read the sizes from the environment's arrays, because declared spaces are not always correct."""
    observed, _ = jax.eval_shape(env.reset, jax.random.key(0))
    if not isinstance(observed, dict) or not set(env.agents) <= set(observed):
        raise UserError(f"task: '{name}' does not name its observations by agent; choose an environment that does")
    sizes = tuple(_actions(name, agent, env.action_space(agent)) for agent in env.agents)
    width = max(math.prod(observed[agent].shape) for agent in env.agents)
    agents = len(env.agents)
    spec = EnvSpec(
        name=name,
        agents=agents,
        observation=width,
        state=math.prod(observed[STATE].shape) if STATE in observed else width * agents,
        actions=max(sizes),
        roles=int(env.unit_type_bits) if smax else agents,
        horizon=_horizon(name, env, horizon),
        version=version,
        metrics=("battle_won",) if smax else (),
        state_is_joint=STATE not in observed,
        reward="agent" if reward == "agent" else "team",
    )
    return JaxMARL(env, spec, sizes, reward, smax)


def _scenario(name: str, scenario: str) -> Any:
    """SMAX's scenario of this name."""
    package = require("jaxmarl.environments.smax", "jaxmarl")
    try:
        return package.map_name_to_scenario(scenario)
    except KeyError:
        raise UserError(
            f"task: SMAX has no scenario '{scenario}' ('{name}'); try jaxmarl/smax-smacv2_5_units"
        ) from None


def _actions(name: str, agent: str, space: Any) -> int:
    number = getattr(space, "n", None)
    if number is None:
        raise UserError(
            f"task: '{name}' gives agent '{agent}' a {type(space).__name__} of actions; "
            "choose an environment with Discrete actions, because QMIX picks one from a list"
        )
    return int(number)


def _horizon(name: str, env: Any, asked: Any) -> int:
    """The time limit in steps: the setting, or the environment's own."""
    known = [asked, *(getattr(env, attribute, None) for attribute in ("max_steps", "max_episode_steps"))]
    found = next((value for value in known if value is not None), None)
    if not isinstance(found, int) or not 1 <= found <= LONGEST:
        better = with_setting(name, "horizon=100")
        raise UserError(f"task: '{name}' does not say how long an episode may last; write {better}")
    return found
