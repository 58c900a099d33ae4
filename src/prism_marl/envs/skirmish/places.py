"""Battles with observations that have room for a larger team: ``skirmish/terran_3_vs_5-places8`` is the same battle,
and every agent observes seven allies, of whom those that are not there are zeros, as the dead and those out of
sight."""

from dataclasses import dataclass, fields, replace

import jax.numpy as jnp

from prism_marl.envs.settings import check_places, read_places
from prism_marl.envs.skirmish.env import MOST, Skirmish, make_skirmish
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class SkirmishWithPlaces(Skirmish):
    """One task; ``places`` counts the agent itself."""

    places: int = 0

    @property
    def spec(self) -> EnvSpec:
        found = super().spec
        more = (self.places - self.agents) * self.ally
        name = f"{found.name}-places{self.places}"
        return replace(found, name=name, observation=found.observation + more, places=self.places)

    @property
    def ally(self) -> int:
        """Numbers that an agent observes of one ally, or of one enemy."""
        return 8 + self.table.shielded

    def _look(self, key, state):
        state, found = super()._look(key, state)
        local = found.local
        end = 4 + (self.enemies + self.agents - 1) * self.ally  # of the allies that are there
        absent = jnp.zeros((*local.shape[:-1], (self.places - self.agents) * self.ally), local.dtype)
        local = jnp.concatenate([local[..., :end], absent, local[..., end:]], axis=-1)
        return state, found._replace(local=local)


def make_battle(variant: str) -> Skirmish:
    """Build ``skirmish/<race>_<n>_vs_<m>[-published][-places<agents>]``."""
    game, places = read_places(variant)
    made = make_skirmish(game)
    if places is None:
        return made
    check_places(f"skirmish/{variant}", places, made.agents, MOST)
    return SkirmishWithPlaces(**{field.name: getattr(made, field.name) for field in fields(made)}, places=places)
