"""Observations, state and legal actions: SMACv2's numbers, in SMACv2's order."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from prism_marl.envs.skirmish.state import State, by_side, pick
from prism_marl.envs.skirmish.units import MAP, Race
from prism_marl.types import Observation

NO_OP, STOP, NORTH, SOUTH, EAST, WEST, ACT = range(7)  # ``ACT + k`` attacks enemy k, or heals agent k
STRIDE = 2.0  # distance to the goal of a move action, in cells
LEAST_RANGE = 2.0  # attacks within this distance are always legal; a unit with a shorter range walks to its target


class Looks(NamedTuple):
    """From each agent to each unit."""

    dx: Float[Array, "n u"]
    dy: Float[Array, "n u"]
    distance: Float[Array, "n u"]
    seen: Bool[Array, "n u"]  # within sight, dead or alive
    sight: Float[Array, " n"]


def looks(race: Race, state: State) -> Looks:
    n = state.last_action.size
    sight = pick(state.kind[:n], [unit.sight for unit in race.units])
    dx, dy = state.x - state.x[:n, None], state.y - state.y[:n, None]
    distance = jnp.sqrt(dx**2 + dy**2)
    return Looks(dx, dy, distance, distance < sight[:, None], sight)


def available(race: Race, state: State, between: Looks) -> Bool[Array, "n a"]:
    """Legal actions: only NO_OP for a dead agent. A target in range (between centres) is legal, hittable or not."""
    n, m = state.last_action.size, state.spotter.size
    alive = state.health > 0
    x, y = state.x[:n], state.y[:n]
    # the map must go on half a stride ahead, with the rounding of the original
    inside = [jnp.trunc(y + 1) < MAP, jnp.trunc(y - 1) >= 0, jnp.trunc(x + 1) < MAP, jnp.trunc(x - 1) >= 0]
    reach = pick(state.kind[:n], [max(unit.range, LEAST_RANGE) for unit in race.units])
    close = (between.distance <= reach[:, None]) & alive[None, :]
    target = close[:, n:]
    if race.fights_with("heal"):
        medic = pick(state.kind[:n], [float(unit.shot == "heal") for unit in race.units]) > 0
        patients = close[:, :n] & ~medic[None, :]
        # there is no action to heal an agent whose number is beyond the number of enemies
        patients = patients[:, :m] if m <= n else jnp.pad(patients, ((0, 0), (0, m - n)))
        target = jnp.where(medic[:, None], patients, target)
    living = jnp.stack([jnp.zeros(n, bool), jnp.ones(n, bool), *inside], axis=1)
    living = jnp.concatenate([living, target], axis=1)
    dead = np.arange(ACT + m) == NO_OP
    return jnp.where(alive[:n, None], living, dead)


def observe(race: Race, mirror: bool, state: State, kept: Bool[Array, "n m"] | None = None) -> Observation:
    """The observation of all agents; ``kept`` says which enemies they see in spite of the published bug."""
    n, m = state.last_action.size, state.spotter.size
    between = looks(race, state)
    avail = available(race, state, between)
    alive = state.health > 0
    bodies = _bodies(race, mirror, state)
    seen = between.seen & alive[None, :] & alive[:n, None]
    scale = between.sight[:, None]
    position = jnp.stack([between.distance / scale, between.dx / scale, between.dy / scale], axis=-1)
    parts = [position, jnp.broadcast_to(bodies, (n, *bodies.shape))]
    view = jnp.where(seen[..., None], jnp.concatenate(parts, axis=-1), 0.0)

    enemy_seen = seen[:, n:] if kept is None else seen[:, n:] & kept
    enemies = jnp.where(enemy_seen[..., None], view[:, n:], 0.0)
    marks = avail[:, ACT:] & enemy_seen  # a medivac's mark says that it can heal the agent of this number, as published
    enemies = jnp.concatenate([marks[..., None].astype(jnp.float32), enemies], axis=-1)
    allies = jnp.concatenate([seen[:, :n, None].astype(jnp.float32), view[:, :n]], axis=-1)
    before = np.arange(n - 1)[None, :, None] < np.arange(n)[:, None, None]
    allies = jnp.where(before, allies[:, :-1], allies[:, 1:])  # all but the agent itself

    spot = jnp.stack([state.x[:n], state.y[:n]], axis=1) / MAP
    own = jnp.concatenate([bodies[:n, :-3], spot, bodies[:n, -3:]], axis=1)
    moves = avail[:, NORTH:ACT].astype(jnp.float32)
    local = jnp.concatenate([moves, enemies.reshape(n, -1), allies.reshape(n, -1), own], axis=1)
    local = jnp.where(alive[:n, None], local, 0.0)
    role = jnp.where(alive[:n], state.kind[:n], 0)
    return Observation(local, _state(race, state, bodies, n, ACT + m), avail, role)


def flags(n: int, m: int, body: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which numbers of an observation and of the state are only ever 0 or 1: legal moves, marks, type bits and last
    actions. A body has so many numbers, the last three of which are type bits."""
    bits, other = [True] * 3, [False] * (body - 3)
    unit = [True, False, False, False, *other, *bits]
    local = [True] * 4 + unit * (m + n - 1) + [*other, False, False, *bits]
    state = [*other, False, False, False, *bits] * n + [*other, False, False, *bits] * m + [True] * (n * (ACT + m))
    return tuple(np.flatnonzero(local).tolist()), tuple(np.flatnonzero(state).tolist())


def _bodies(race: Race, mirror: bool, state: State) -> Float[Array, "u f"]:
    """Health, shields if the race has them, and type bits of every unit."""
    n = state.last_action.size
    parts = [state.health / by_side(race, state.kind, n, mirror, lambda unit: unit.health)]
    if race.shielded:
        parts.append(state.shield / pick(state.kind, [unit.shield for unit in race.units]))
    bits = state.kind[:, None] == np.arange(3)
    return jnp.concatenate([jnp.stack(parts, axis=1), bits.astype(jnp.float32)], axis=1)


def _state(race: Race, state: State, bodies: Float[Array, "u f"], n: int, actions: int) -> Float[Array, " s"]:
    """Agents, enemies, and the agents' last actions."""
    alive = (state.health > 0)[:, None]
    spot = jnp.stack([state.x, state.y], axis=1) / MAP - 0.5
    medic = pick(state.kind[:n], [float(unit.shot == "heal") for unit in race.units]) > 0
    wait = jnp.where(medic, state.energy[:n], jnp.maximum(state.cooldown[:n], 0.0))
    wait = wait / pick(state.kind[:n], [unit.state_cooldown for unit in race.units])
    health, rest = bodies[:, :1], bodies[:, 1:]
    agents = jnp.concatenate([health[:n], wait[:, None], spot[:n], rest[:n]], axis=1)
    enemies = jnp.concatenate([health[n:], spot[n:], rest[n:]], axis=1)
    done = state.last_action[:, None] == np.arange(actions)
    parts = [jnp.where(alive[:n], agents, 0.0), jnp.where(alive[n:], enemies, 0.0), done.astype(jnp.float32)]
    return jnp.concatenate([part.reshape(-1) for part in parts])


def first_look(
    state: State, seen: Bool[Array, "n m"], rank: Int[Array, " n"]
) -> tuple[Int[Array, " m"], Bool[Array, "n m"]]:
    """SMACv2's open bug #50: which agent is recorded as the first to see each enemy, and which enemies an agent keeps.

    Agents observe one after the other (``rank``). If an agent comes to an enemy that no agent has seen so far, dead
    enemies included, it loses everything that it has observed about the enemies before that one.
    """
    n = rank.size
    sees = seen & (state.health[:n] > 0)[:, None]
    known = state.spotter >= 0
    so_far = jnp.any(sees[None, :, :] & (rank[None, :] <= rank[:, None])[:, :, None], axis=1) | known
    kept = jnp.flip(jnp.cumprod(jnp.flip(so_far, axis=1), axis=1), axis=1).astype(bool)
    first = jnp.argmin(jnp.where(sees, rank[:, None], n), axis=0)
    return jnp.where(known, state.spotter, jnp.where(sees.any(axis=0), first, -1)).astype(jnp.int32), kept


def forget(state: State) -> State:
    """Dead enemies, and enemies first seen by an agent that is dead now, count as not yet seen."""
    n = state.last_action.size
    gone = jnp.any((state.spotter[:, None] == np.arange(n)) & (state.health[:n] <= 0), axis=1)
    return state._replace(spotter=jnp.where(gone | (state.health[n:] <= 0), -1, state.spotter))
