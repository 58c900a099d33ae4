"""Battles set up by hand, and ways to play them, for the tests of ``skirmish``."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.envs.skirmish import Skirmish
from prism_marl.envs.skirmish.state import State

NEVER = 1e6  # a cooldown that no test outlives
STOP, NORTH, SOUTH, EAST, WEST, ACT = range(1, 7)
Soldier = tuple[str, float, float] | tuple[str, float, float, dict[str, float]]


def field(race: str, agents: Sequence[Soldier], enemies: Sequence[Soldier]) -> tuple[Skirmish, State]:
    """Units by name and place; a fourth entry changes their health, shield, energy or cooldown."""
    env = Skirmish(race, len(agents), len(enemies), mirror=True)
    names = [unit.name for unit in env.table.units]
    everybody = [*agents, *enemies]
    rows = [env.table.units[names.index(str(soldier[0]))] for soldier in everybody]
    changes = [soldier[3] if len(soldier) > 3 else {} for soldier in everybody]

    def column(name: str, normal: Callable[[Any], float]) -> jax.Array:
        values = [change.get(name, normal(row)) for change, row in zip(changes, rows, strict=True)]
        return jnp.array(values, jnp.float32)

    zero = jnp.zeros(len(rows), jnp.float32)
    return env, State(
        kind=jnp.array([names.index(row.name) for row in rows], jnp.int32),
        x=jnp.array([soldier[1] for soldier in everybody], jnp.float32),
        y=jnp.array([soldier[2] for soldier in everybody], jnp.float32),
        health=column("health", lambda row: row.health),
        shield=column("shield", lambda row: row.shield),
        energy=column("energy", lambda row: 50.0 if row.shot == "heal" else 0.0),
        cooldown=column("cooldown", lambda row: 0.0),
        calm=zero,
        target=jnp.full(len(rows), -1, jnp.int32),
        bursting=jnp.zeros(len(rows), bool),
        last_action=jnp.full(len(agents), -1, jnp.int32),
        spotter=jnp.full(len(enemies), -1, jnp.int32),
        clock=jnp.int32(0),
    )


@functools.cache
def stepper(env: Skirmish) -> Any:
    """One compiled step."""
    return jax.jit(env.step)


def play(env: Skirmish, state: State, *actions: Sequence[int], seed: int = 0) -> tuple[State, Any]:
    """One step for each list of actions; the last step's record comes along."""
    step = None
    for number, action in enumerate(actions):
        key = jax.random.fold_in(jax.random.key(seed), number)
        state, step = stepper(env)(key, state, jnp.array(action, jnp.int32))
    return state, step


def legal(key: jax.Array, avail: jax.Array) -> jax.Array:
    """Random legal actions."""
    return jnp.argmax(jnp.where(avail, jax.random.uniform(key, avail.shape), -1.0), axis=-1)


@functools.partial(jax.jit, static_argnums=(0, 2, 3, 4))
def random_battles(env: Skirmish, key: jax.Array, number: int, steps: int, measure: Any) -> Any:
    """Random play side by side; ``measure(state, step)`` of all battles is kept for each step."""
    key_reset, key_steps = jax.random.split(key)
    state, obs = jax.vmap(env.reset)(jax.random.split(key_reset, number))

    def advance(carry, key):
        state, avail = carry
        key_act, key_env = jax.random.split(key)
        action = legal(key_act, avail)
        state, step = jax.vmap(env.step)(jax.random.split(key_env, number), state, action)
        return (state, step.obs.avail), measure(state, step)

    return jax.lax.scan(advance, (state, obs.avail), jax.random.split(key_steps, steps))


def alive(state: State) -> np.ndarray:
    return np.asarray(state.health) > 0
