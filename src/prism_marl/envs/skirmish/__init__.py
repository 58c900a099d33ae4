"""Battles by SMACv2's rules without StarCraft, in JAX."""

from prism_marl.envs.skirmish.env import Skirmish, make_skirmish
from prism_marl.envs.skirmish.places import make_battle
from prism_marl.envs.skirmish.units import RACES

__all__ = ["RACES", "Skirmish", "make_battle", "make_skirmish"]
