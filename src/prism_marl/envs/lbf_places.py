"""Foraging with observations that have room for a larger team: ``lbf/...-places8`` is the same game, and every agent
observes seven mates, of whom those that are not there read (-1, -1, 0). So networks keep their sizes while a team
grows."""

from dataclasses import dataclass, fields, replace

import jax.numpy as jnp

from prism_marl.envs.lbf import Field, Foraging, State, make_lbf
from prism_marl.envs.settings import check_places, read_places
from prism_marl.types import EnvSpec, Observation

MOST = 64
ABSENT = (-1, -1, 0)  # row, column and level of a mate that is not there, as of one that is out of sight


@dataclass(frozen=True)
class ForagingWithPlaces(Foraging):
    """One task; ``places`` counts the agent itself."""

    places: int = 0

    @property
    def spec(self) -> EnvSpec:
        found = super().spec
        size = 3 * (self.foods + self.places)
        return replace(
            found,
            name=f"{found.name}-places{self.places}",
            observation=size,
            state=size * self.players,
            places=self.places,
        )

    def fields(self) -> tuple[Field, ...]:
        """Those of the game, and of mates that are never there."""
        there = super().fields()
        return there + tuple(
            Field(len(there) + 3 * k + part, f"mate{self.players - 1 + k}.{word}", "nobody is there", value, value)
            for k in range(self.places - self.players)
            for part, (word, value) in enumerate(zip(("row", "column", "level"), ABSENT, strict=True))
        )

    def _observe(self, state: State) -> Observation:
        found = super()._observe(state)
        absent = jnp.tile(jnp.array(ABSENT, found.local.dtype), self.places - self.players)
        padding = jnp.broadcast_to(absent, (self.players, absent.size))
        local = jnp.concatenate([found.local, padding], axis=1)
        return found._replace(local=local, state=local.reshape(-1))


def make_foraging(variant: str) -> Foraging:
    """Build ``lbf/<rows>x<cols>-<players>p-<foods>f[...][-places<agents>]``."""
    game, places = read_places(variant)
    made = make_lbf(game)
    if places is None:
        return made
    check_places(f"lbf/{variant}", places, made.players, MOST)
    return ForagingWithPlaces(**{field.name: getattr(made, field.name) for field in fields(made)}, places=places)
