"""The start of a battle: unit types and positions, by the distributions of SMACv2's configurations."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from prism_marl.envs.skirmish.geometry import settle
from prism_marl.envs.skirmish.state import State, by_side, traits
from prism_marl.envs.skirmish.units import ENERGY_START, MAP, Race

ATTEMPTS = 8  # to sample a valid team; with five agents all of them fail with probability 1e-40
SURROUNDED = 0.5  # share of battles in which the enemies stand around the agents
CENTRE, BUFFER = MAP / 2, 2.0  # no enemy group starts closer to the centre than this, on each axis
SPACING = 0.7  # between units of one group
ROUNDS = 24  # of pushing bodies apart before the battle starts
GOLDEN = np.pi * (3 - np.sqrt(5))  # angle between neighbours in a sunflower


def start(race: Race, agents: int, enemies: int, mirror: bool, key: Key[Array, ""]) -> State:
    """A new battle: the enemy's team is a copy of the agents', with more or fewer units if the numbers differ."""
    key_team, key_more, key_coin, key_reflect, key_around = jax.random.split(key, 5)
    team = sample_team(race, agents, key_team)
    more = sample_team(race, enemies - agents, key_more) if enemies > agents else team[:0]
    kind = jnp.concatenate([team, team[:enemies], more])
    reflected = reflect(agents, enemies, key_reflect)
    around = surround(agents, enemies, key_around)
    x, y = jnp.where(jax.random.bernoulli(key_coin, SURROUNDED), around, reflected)
    x, y = _push_apart(race, kind, x, y, agents, mirror)
    kind, x, y = (
        jnp.concatenate([ours, theirs[agents:]])
        for ours, theirs in zip(_in_order(race, kind[:agents], x[:agents], y[:agents]), (kind, x, y), strict=True)
    )
    zeros = jnp.zeros(kind.shape, jnp.float32)
    return State(
        kind=kind,
        x=x,
        y=y,
        health=by_side(race, kind, agents, mirror, lambda unit: unit.health),
        shield=by_side(race, kind, agents, mirror, lambda unit: unit.shield),
        energy=by_side(race, kind, agents, mirror, lambda unit: ENERGY_START if unit.shot == "heal" else 0.0),
        cooldown=zeros,
        calm=zeros,
        target=jnp.full(kind.shape, -1, jnp.int32),
        bursting=jnp.zeros(kind.shape, bool),
        last_action=jnp.full(agents, -1, jnp.int32),
        spotter=jnp.full(enemies, -1, jnp.int32),
        clock=jnp.int32(0),
    )


def sample_team(race: Race, size: int, key: Key[Array, ""]) -> Int[Array, " n"]:
    """Types one by one; a team of only the type ``never_alone`` is sampled again."""
    edges = np.cumsum(race.weights)[:2].astype(np.float32)
    teams = jnp.sum(jax.random.uniform(key, (ATTEMPTS, size, 1)) > edges, axis=-1, dtype=jnp.int32)
    if race.never_alone is None:
        return teams[0]
    valid = jnp.any(teams != race.never_alone, axis=1)
    return teams[jnp.argmax(valid)]


def reflect(agents: int, enemies: int, key: Key[Array, ""]) -> Float[Array, "2 u"]:
    """Agents anywhere in the left half but its last cell, enemies mirrored; surplus enemies anywhere on their half."""
    key_x, key_y, key_more = jax.random.split(key, 3)
    x = jax.random.uniform(key_x, (agents,)) * (CENTRE - 1)
    y = jax.random.uniform(key_y, (agents,)) * MAP
    more = jax.random.uniform(key_more, (2, max(enemies - agents, 0))) * jnp.array([[CENTRE], [MAP]])
    xs = jnp.concatenate([x, MAP - x[:enemies], CENTRE + more[0]])
    return jnp.stack([xs, jnp.concatenate([y, y[:enemies], more[1]])])


def surround(agents: int, enemies: int, key: Key[Array, ""]) -> Float[Array, "2 u"]:
    """Agents in the centre, enemies in one to four groups, each somewhere on its own diagonal."""
    key_groups, key_member, key_inward, key_diagonal = jax.random.split(key, 4)
    groups = jax.random.randint(key_groups, (), 1, 5)
    member = jnp.sort(jax.random.randint(key_member, (enemies,), 0, groups))
    inward = jax.random.uniform(key_inward, (4,))[member]
    diagonal = jax.random.permutation(key_diagonal, 4)[member]
    out = CENTRE + (BUFFER - CENTRE) * inward  # from the corner to the buffer around the centre
    rank = jnp.sum((member[:, None] == member) & np.tri(enemies, k=-1, dtype=bool), axis=1)
    number = jnp.concatenate([jnp.arange(agents), rank])  # in the group
    turn, reach = number * GOLDEN, SPACING * jnp.sqrt(number.astype(jnp.float32))
    x = jnp.concatenate([jnp.full(agents, CENTRE), CENTRE + jnp.where(diagonal >= 2, out, -out)])
    y = jnp.concatenate([jnp.full(agents, CENTRE), CENTRE + jnp.where((diagonal == 1) | (diagonal == 2), out, -out)])
    return jnp.stack([x + reach * jnp.cos(turn), y + reach * jnp.sin(turn)])


def _push_apart(
    race: Race, kind: Int[Array, " u"], x: Float[Array, " u"], y: Float[Array, " u"], agents: int, mirror: bool
):
    """Push overlapping bodies apart, as the game does when it creates units."""
    look = traits(race, kind, agents, mirror)
    alive, walking = jnp.ones(kind.shape, bool), jnp.zeros(kind.shape, bool)

    def once(position: tuple[Array, Array], _: None):
        return settle(*position, alive, walking, look), None

    position, _ = jax.lax.scan(once, (x, y), None, length=ROUNDS)
    return position


def _in_order(race: Race, kind: Int[Array, " n"], x: Float[Array, " n"], y: Float[Array, " n"]):
    """Agents are numbered by unit id, then x, then y; enemies keep the order in which they were created."""
    rank = jnp.where(kind == 0, race.ranks[0], jnp.where(kind == 1, race.ranks[1], race.ranks[2]))
    _, x, y, kind = jax.lax.sort((rank, x, y, kind), num_keys=3)
    return kind, x, y
