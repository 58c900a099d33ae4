"""Battles by SMACv2's rules without StarCraft, in JAX."""

from prism_marl.envs.skirmish.env import Skirmish, make_skirmish

__all__ = ["Skirmish", "make_skirmish"]
