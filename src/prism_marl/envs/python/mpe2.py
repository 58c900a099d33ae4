"""The particle games of the package mpe2, through PettingZoo: ``mpe2/<game>[?name=value&...]``, with drawings."""

import importlib.util
import pkgutil
import re

import numpy as np

from prism_marl.envs.base import require
from prism_marl.envs.python.pettingzoo import PettingZoo, build
from prism_marl.errors import UserError, nearest
from prism_marl.scene import FOE, NOBODY, Scene, Shape

WIDTH = 10.0  # of a drawing; the games are played around a square of 2, which some agents leave
REACH = 1.4  # how far the drawing shows the plane to each side


class Particles(PettingZoo):
    """One game. Its physics are those of the package; the drawing is ours, so that it needs no screen."""

    def scene(self) -> Scene:
        """Discs for agents in their sizes (adversaries dark), grey discs for landmarks."""
        world, unit = self.env.unwrapped.world, WIDTH / (2 * REACH)
        shapes: list[Shape] = []
        for entity in (*world.landmarks, *world.agents):
            if not np.isfinite(entity.state.p_pos).all():
                continue
            x, y = (np.clip(entity.state.p_pos[:2] * (1, -1), -REACH, REACH) + REACH) * unit
            number = self.team.agents.index(entity.name) if entity.name in self.team.agents else None
            colour = NOBODY if number is None else FOE if getattr(entity, "adversary", False) else number
            label, glyph = ("", "*") if number is None else (str(number + 1), chr(ord("A") + number % 26))
            shapes.append(Shape("disc", float(x), float(y), 2 * float(entity.size) * unit, colour, label, glyph))
        caption = f"step {self.team.clock}/{self.spec.horizon}"
        legend = "grey: landmarks; dark: adversaries; whoever is outside is drawn at the edge"
        return Scene(WIDTH, WIDTH, tuple(shapes), grid=False, caption=caption, legend=legend)


def make_mpe2(variant: str) -> Particles:
    """Build ``mpe2/<game>[?name=value&...]``; the settings are those of ``pettingzoo``."""
    package = require("mpe2", "mpe2")
    game, _, query = variant.partition("?")
    games = [found.name for found in pkgutil.iter_modules(package.__path__) if re.search("_v[0-9]+$", found.name)]
    if game not in games or importlib.util.find_spec(f"mpe2.{game}") is None:
        raise UserError(f"task: mpe2 has no game '{game}'; {nearest(game, games)}")
    return build(Particles, f"mpe2/{variant}", f"mpe2.{game}", query)
