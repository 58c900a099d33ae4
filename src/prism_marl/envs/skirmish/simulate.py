"""Half a second of battle: eight loops, in each of which units choose targets, shoot, walk and are pushed apart."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.envs.skirmish import weapons
from prism_marl.envs.skirmish.geometry import Pairs, inside, pairs, part, settle
from prism_marl.envs.skirmish.script import retarget
from prism_marl.envs.skirmish.state import State, Traits
from prism_marl.envs.skirmish.units import (
    ENERGY_MOST,
    ENERGY_RATE,
    JITTER,
    LOOPS,
    SHIELD_RATE,
    SHIELD_WAIT,
    SUBSTEPS,
    Race,
)

TOUCH = 1e-3  # added to the range at which an approach ends, because of rounding


class Orders(NamedTuple):
    """The agents' orders to their units for this step; units without target and goal stand still."""

    target: Int[Array, " n"]  # index among all units; -1: none
    walks: Bool[Array, " n"]
    goal_x: Float[Array, " n"]
    goal_y: Float[Array, " n"]


def advance(race: Race, traits: Traits, state: State, orders: Orders | None, key: Key[Array, ""]) -> State:
    """Eight loops. Without orders the script controls both sides."""
    noise = jax.random.bits(key, state.health.shape)  # two bits for each loop and unit

    def loop(carry: tuple[State, Array], number: Array):
        jitter = ((noise >> (2 * number)) & 3).astype(jnp.float32) + JITTER[0]
        return _loop(race, traits, orders, carry, jitter), None

    start = (state, jnp.zeros(state.health.shape, bool))
    at_once = 1 if jax.default_backend() == "cpu" else SUBSTEPS  # an accelerator takes longer to turn than to compute
    (state, walking), _ = jax.lax.scan(loop, start, jnp.arange(SUBSTEPS, dtype=jnp.uint32), unroll=at_once)
    x, y = settle(state.x, state.y, state.health > 0, walking, traits)
    return state._replace(x=x, y=y)


def _loop(race: Race, traits: Traits, orders: Orders | None, carry: tuple[State, Array], jitter: Float[Array, " u"]):
    """One loop: all units decide by the state at its start, then everything happens at once."""
    state, _ = carry
    alive = state.health > 0
    between = pairs(state.x, state.y, traits.radius)
    target = retarget(race, traits, state, between)
    if orders is not None:
        target = jnp.concatenate([orders.target, target[orders.target.size :]])
    aim = (target[:, None] == np.arange(alive.size)) & alive[:, None] & alive[None, :]
    gap = jnp.sum(jnp.where(aim, between.gap, 0.0), axis=1)
    aims = aim.any(axis=1)
    near = aims & (gap <= traits.range + TOUCH)
    fires = near & (state.cooldown <= 0) & (traits.hits > 0)

    vx, vy = (jnp.sum(jnp.where(aim, way, 0.0), axis=1) for way in (between.dx, between.dy))
    if orders is not None:
        vx, vy = _walk(orders, state, vx, vy)
    length = jnp.sqrt(vx**2 + vy**2)
    left = jnp.where(aims, jnp.maximum(gap - traits.range, 0.0), length)
    go = jnp.where(alive & ~near, jnp.minimum(left, traits.speed), 0.0) / jnp.maximum(length, 1e-6)
    walking = go > 0
    px, py = part(between, alive, walking, traits)

    health, shield, bursting = _fight(race, traits, state, between, aim, fires)
    state = _recover(race, traits, state, health, shield, near[:, None] & aim)
    cooldown = state.cooldown + jnp.where(fires, traits.cooldown + jitter, 0.0)
    return state._replace(
        x=inside(state.x + go * vx + px, traits.radius),
        y=inside(state.y + go * vy + py, traits.radius),
        cooldown=jnp.where(cooldown > 0, cooldown - 1, cooldown),  # what is left below 0 shortens the next wait
        target=target,
        bursting=bursting,
    ), walking


def _fight(
    race: Race, traits: Traits, state: State, between: Pairs, aim: Bool[Array, "u u"], fires: Bool[Array, " u"]
) -> tuple[Float[Array, " u"], Float[Array, " u"], Bool[Array, " u"]]:
    """Health and shields after the attacks of one loop, and the banelings that died of them or of their own attack."""
    struck, bomb = fires[:, None] & aim, jnp.zeros_like(fires)
    if race.fights_with("line"):
        sweeps = _has(race, state, "line")[:, None]
        struck = jnp.where(sweeps, fires[:, None] & weapons.line(between, aim, traits), struck)
    if race.fights_with("burst"):
        bomb = _has(race, state, "burst")
        struck = (struck & ~bomb[:, None]) | weapons.burst(between, state.bursting, traits)
    health, shield = weapons.harm(struck, state.health, state.shield, traits, race.shielded)
    health = jnp.where(fires & bomb, 0.0, jnp.maximum(health, 0.0))  # it bursts in the next loop, as a killed one does
    return health, shield, bomb & (state.health > 0) & (health <= 0)


def _walk(orders: Orders, state: State, vx: Float[Array, " u"], vy: Float[Array, " u"]):
    """Directions of the units, to their goals if they have an order to walk."""
    n = orders.walks.size
    x = jnp.where(orders.walks, orders.goal_x - state.x[:n], vx[:n])
    y = jnp.where(orders.walks, orders.goal_y - state.y[:n], vy[:n])
    return jnp.concatenate([x, vx[n:]]), jnp.concatenate([y, vy[n:]])


def _has(race: Race, state: State, shot: str) -> Bool[Array, " u"]:
    """Units of the type with this kind of attack."""
    return state.kind == next(index for index, unit in enumerate(race.units) if unit.shot == shot)


def _recover(race: Race, traits: Traits, state: State, health, shield, reached: Bool[Array, "u u"]) -> State:
    """Healing, regeneration, shields and energy of living units."""
    energy, calm = state.energy, state.calm
    if race.fights_with("heal"):
        health, energy = weapons.mend(reached, health, energy, traits)
        filled = jnp.minimum(energy + ENERGY_RATE / LOOPS, ENERGY_MOST)
        energy = jnp.where((traits.hits == 0) & (health > 0), filled, energy)
    if any(unit.regeneration for unit in race.units):
        health = jnp.where(health > 0, jnp.minimum(health + traits.regeneration, traits.health), 0.0)
    if race.shielded:
        hurt = (health < state.health) | (shield < state.shield)
        calm = jnp.where(hurt, 0.0, calm + 1)
        back = (calm > SHIELD_WAIT * LOOPS) & (health > 0)
        shield = jnp.where(back, jnp.minimum(shield + SHIELD_RATE / LOOPS, traits.shield), shield)
    return state._replace(health=health, shield=shield, energy=energy, calm=calm)
