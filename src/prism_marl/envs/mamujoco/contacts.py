"""Lists the pairs of geoms that can touch in the model of a robot, so that the engine need not search for them.

In every step the engine searches all geoms for pairs that may touch, and rejects most of them by rules that never
change; few pairs are left. If the model lists these, the engine tests them in the same order and finds the same
contacts, bit for bit. This saves the search, which is a tenth of Ant's time.
"""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

MOST = 64  # pairs; robots have 7 to 13, and a very long list takes longer than the search


def with_listed_contacts(engine: Any, file: Path, model: Any, margin: np.ndarray) -> Any:
    """The model of a file with its pairs listed, given the original ``margin`` of each geom.

    Returns ``model`` itself if that is not possible.
    """
    pairs = [pair for pair in combinations(range(model.ngeom), 2) if _may_touch(model, *pair)]
    if model.npair or model.nexclude or not 0 < len(pairs) <= MOST or not all(_alike(model, *pair) for pair in pairs):
        return model
    spec = engine.MjSpec.from_file(str(file))
    names = [geom.name for geom in spec.geoms]
    compiled = [engine.mj_id2name(model, engine.mjtObj.mjOBJ_GEOM, geom) for geom in range(model.ngeom)]
    if not all(names) or names != compiled:
        return model  # a geom without a name, or with another index in the file than in the model, cannot be listed
    for geom in spec.geoms:
        geom.contype, geom.conaffinity = 0, 0
    for one, other in pairs:
        slide, spin, roll = np.maximum(model.geom_friction[one], model.geom_friction[other])
        pair = spec.add_pair(geomname1=names[one], geomname2=names[other])
        pair.condim = max(model.geom_condim[one], model.geom_condim[other])
        pair.friction = [slide, slide, spin, roll, roll]
        pair.solref, pair.solimp = model.geom_solref[one], model.geom_solimp[one]
        pair.margin, pair.gap = max(margin[one], margin[other]), max(model.geom_gap[one], model.geom_gap[other])
    return spec.compile()


def _may_touch(model: Any, one: int, other: int) -> bool:
    """The engine's rules: the types of the geoms must match, and their bodies must not be neighbours in the tree."""
    match = (model.geom_contype[one] & model.geom_conaffinity[other]) | (
        model.geom_contype[other] & model.geom_conaffinity[one]
    )
    bodies = [int(model.body_weldid[model.geom_bodyid[geom]]) for geom in (one, other)]
    if not match or bodies[0] == bodies[1]:
        return False
    parents = [int(model.body_weldid[model.body_parentid[body]]) for body in bodies]
    related = (bodies[0] == parents[1] and bodies[0] != 0) or (bodies[1] == parents[0] and bodies[1] != 0)
    return not related


def _alike(model: Any, one: int, other: int) -> bool:
    """Whether both geoms have the same solver parameters, so that the engine need not mix them."""
    same = ("geom_priority", "geom_solmix", "geom_solref", "geom_solimp")
    return all(np.array_equal(getattr(model, name)[one], getattr(model, name)[other]) for name in same)
