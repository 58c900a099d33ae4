"""``skirmish/<race>_<n>_vs_<m>``: SMACv2's battles in pure JAX, with our own dynamics.

Units, observations, actions, rewards and starts are SMACv2's; ``simulate`` replaces StarCraft's engine. All known
differences are listed in docs/environments.md.
"""

import re
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.envs.skirmish.drawing import battle_scene
from prism_marl.envs.skirmish.observe import (
    ACT,
    EAST,
    NORTH,
    SOUTH,
    STRIDE,
    WEST,
    first_look,
    flags,
    forget,
    looks,
    observe,
)
from prism_marl.envs.skirmish.simulate import Orders, advance
from prism_marl.envs.skirmish.state import State, Traits, traits
from prism_marl.envs.skirmish.teams import start
from prism_marl.envs.skirmish.units import JITTER, LOOPS, MAP, RACES, Race
from prism_marl.errors import UserError, nearest
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step

HORIZON = 200
MOST = 32  # units on one side
KILL, WIN = 10.0, 200.0  # points, in addition to one for each point of damage
SCALE = 20.0  # the return of a battle that is won
PUBLISHED = "-published"


@dataclass(frozen=True)
class Skirmish:
    """One task."""

    race: str
    agents: int
    enemies: int
    enemy_visibility: Literal["clean", "published"] = "clean"  # published: with SMACv2's bug #50
    mirror: bool = False  # the enemy has the agents' unit data, not StarCraft's stock units

    @property
    def table(self) -> Race:
        return RACES[self.race]

    @property
    def spec(self) -> EnvSpec:
        n, m, body = self.agents, self.enemies, 4 + self.table.shielded
        armed = [unit for unit in self.table.units if unit.cooldown]
        ratios = [(unit.cooldown * LOOPS + max(JITTER)) / unit.state_cooldown for unit in armed]
        tail = PUBLISHED if self.enemy_visibility == "published" else ""
        local_flags, state_flags = flags(n, m, body)
        return EnvSpec(
            name=f"skirmish/{self.race}_{n}_vs_{m}{tail}",
            agents=n,
            observation=4 + (m + n - 1) * (4 + body) + body + 2,
            state=n * (3 + body) + m * (2 + body) + n * (ACT + m),
            actions=ACT + m,
            roles=3,
            horizon=HORIZON,
            version="skirmish-1",
            metrics=("battle_won", "dead_allies", "dead_enemies"),
            flags=local_flags,
            state_flags=state_flags,
            magnitude=max(1.0, *ratios),  # a cooldown in the state may exceed what it is divided by
        )

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        """Sample teams and positions."""
        key_start, key_order = jax.random.split(key)
        state = start(self.table, self.agents, self.enemies, self.mirror, key_start)
        if self.enemy_visibility == "published":
            # the original's runner observes twice before the first action
            state, _ = self._look(key_order, state)
        return self._look(key_order, state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " n"]) -> tuple[State, Step]:
        """Half a second of battle."""
        key_fight, key_order = jax.random.split(key)
        before = state
        look = self.traits(state)
        state = advance(self.table, look, state, self.orders(state, look, action), key_fight)
        state = forget(state._replace(last_action=action.astype(jnp.int32), clock=state.clock + 1))
        won, over = self._verdict(state)
        points = shaped(before, state) + WIN * won
        state, obs = self._look(key_order, state)
        dead = (state.health <= 0).astype(jnp.float32)
        return state, Step(
            obs,
            reward=points * SCALE / self.most_points(look),
            terminated=over,
            truncated=(state.clock >= HORIZON) & ~over,
            metrics={
                "battle_won": won.astype(jnp.float32),
                "dead_allies": jnp.sum(dead[: self.agents]),
                "dead_enemies": jnp.sum(dead[self.agents :]),
            },
        )

    def scene(self, state: State) -> Scene:
        """A drawing of the battle."""
        return battle_scene(self.table, jax.device_get(state), self.mirror, HORIZON)

    def traits(self, state: State) -> Traits:
        """The numbers of the units table for the units of this battle."""
        return traits(self.table, state.kind, self.agents, self.mirror)

    def orders(self, state: State, look: Traits, action: Int[Array, " n"]) -> Orders:
        """Actions as orders to units. A unit whose target it cannot hit or heal stands still."""
        n = self.agents
        x, y = state.x[:n], state.y[:n]
        chosen = action - ACT
        heals = look.heals[:n].any(axis=1) | (look.hits[:n] == 0)
        target = jnp.where(chosen < 0, -1, jnp.where(heals, chosen, n + chosen))
        legal = (look.damage[:n] > 0) | look.heals[:n]
        can = jnp.any((target[:, None] == np.arange(n + self.enemies)) & legal, axis=1)
        return Orders(
            target=jnp.where(can, target, -1).astype(jnp.int32),
            walks=(action >= NORTH) & (action <= WEST),
            goal_x=jnp.clip(x + STRIDE * (action == EAST) - STRIDE * (action == WEST), 0.0, MAP),
            goal_y=jnp.clip(y + STRIDE * (action == NORTH) - STRIDE * (action == SOUTH), 0.0, MAP),
        )

    def most_points(self, look: Traits) -> Float[Array, ""]:
        """The points of a won battle, computed for each battle; SMACv2 keeps the number of its first episode."""
        return KILL * self.enemies + WIN + jnp.sum((look.health + look.shield)[self.agents :])

    def _verdict(self, state: State) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Whether the agents have won, and whether the battle is over. A team of medivacs alone counts as dead."""
        alive = state.health > 0
        able = alive & (state.kind != 2) if self.table.fights_with("heal") else alive
        ours, theirs = able[: self.agents].any(), able[self.agents :].any()
        return ours & ~theirs, ~ours | ~theirs

    def _look(self, key: Key[Array, ""], state: State) -> tuple[State, Observation]:
        if self.enemy_visibility == "clean":
            return state, observe(self.table, self.mirror, state)
        rank = jax.random.permutation(key, self.agents)  # the original shuffles its agents before each observation
        spotter, kept = first_look(state, looks(self.table, state).seen[:, self.agents :], rank)
        return state._replace(spotter=spotter), observe(self.table, self.mirror, state, kept)


def shaped(before: State, after: State) -> Float[Array, ""]:
    """Points for damage to enemies and kills, minus what enemies regained, but never below 0."""
    n = before.last_action.size
    lived, lives = before.health[n:] > 0, after.health[n:] > 0
    had, has = (before.health + before.shield)[n:], (after.health + after.shield)[n:]
    points = jnp.where(lives, had - has, had + KILL)
    return jnp.maximum(jnp.sum(jnp.where(lived, points, 0.0)), 0.0)


def make_skirmish(variant: str) -> Skirmish:
    """Build ``skirmish/<race>_<n>_vs_<m>[-published]``."""
    found = re.fullmatch(rf"([a-z]+)_([0-9]{{1,9}})_vs_([0-9]{{1,9}})({PUBLISHED})?", variant)
    if found is None or found[1] not in RACES:
        known = [f"{race}_{n}_vs_{n}{tail}" for tail in ("", PUBLISHED) for n in (5, 10, 20) for race in RACES]
        raise UserError(
            f"task: 'skirmish/{variant}' is not <{'|'.join(RACES)}>_<agents>_vs_<enemies>[{PUBLISHED}]; "
            f"{nearest(variant, known)}"
        )
    sizes = {"agents": (int(found[2]), 2), "enemies": (int(found[3]), 1)}
    for name, (size, least) in sizes.items():
        if (near := min(max(size, least), MOST)) != size:
            raise UserError(f"task: 'skirmish/{variant}' has {size} {name}, not {least} to {MOST}; try {near}")
    visibility = "published" if found[4] else "clean"
    return Skirmish(found[1], int(found[2]), int(found[3]), visibility)
