"""The trained team for the page's own field: its policy in half precision and the rules that the page's script knows.

The page repeats the rules of ``lbf``, ``roles`` and ``orchard`` (``assets/games.js``, ``assets/orchard.js``), so the
visitor can move things and see what the team does. Where agents share singular vectors, the page gets these, and the
visitor may switch directions.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl import envs
from prism_marl.envs.lbf import Foraging
from prism_marl.envs.orchard import Orchard
from prism_marl.envs.roles import Roles
from prism_marl.errors import UserError
from prism_marl.policies.files import factors_file, finished_policy, read_policy
from prism_marl.policies.policy import Policy
from prism_marl.runs.run_files import Spectra

ROOM = 300_000  # bytes of all policies of a page, as text
GAMES = ("lbf", "orchard", "roles")
STEPS = ("relu", "tanh", "gru")  # what assets/policy.js knows besides linear layers
LARGEST_FILE = 2**22  # bytes of a policy that may fit
MOST_CELLS = 400  # a larger field would be too small to touch
LARGEST = float(np.finfo(np.float16).max)


def field_of(folder: Path, task: str) -> dict[str, Any] | None:
    """The policy of the first seed and the rules of its game; None where the page cannot play it."""
    try:
        game = game_data(task)
        policy = None if game is None else _policy(folder)
    except UserError:  # a strange task, or a file that is damaged: the run is still worth a page
        return None
    if game is None or policy is None or not _fits(policy, task, game):
        return None
    return {"game": game, "seed": policy.contract.seed, "policy": policy_data(policy)}


def policy_data(policy: Policy) -> dict[str, Any]:
    """What ``assets/policy.js`` reads."""
    c = policy.contract
    return {
        "agents": c.agents,
        "actions": c.actions,
        "hidden": c.hidden,
        "lastAction": c.last_action,
        "ids": c.ids,
        "scale": repr(c.scale),  # as text, because the page's numbers are rounded
        "standardise": c.standardise,
        "identity": list(c.identity),
        "network": list(c.network),
        "common": {},
        "arrays": {name: _half(value) for name, value in policy.tensors.items() if name != "explore"},
    }


def give_room(fields: Sequence[dict[str, Any] | None], first: int) -> list[dict[str, Any] | None]:
    """The fields that fit into the page's room together: that of run ``first``, then in order; None for the others."""
    room = ROOM
    kept: list[dict[str, Any] | None] = [None] * len(fields)
    for place in sorted(range(len(fields)), key=lambda place: place != first):
        field = fields[place]
        size = 0 if field is None else sum(len(array["bytes"]) for array in field["policy"]["arrays"].values())
        if size <= room:
            kept[place], room = field, room - size
    return kept


def with_common(field: dict[str, Any], spectra: Spectra | None) -> dict[str, Any]:
    """The same with the number of directions of each layer that all agents use by design."""
    layers = () if spectra is None else spectra.layers
    common = {layer.name.rpartition(".")[2]: layer.common for layer in layers}
    return {**field, "policy": {**field["policy"], "common": common}}


def _policy(folder: Path) -> Policy | None:
    files = [path for path in factors_file(folder).parent.glob("*.safetensors") if path.is_file()]
    if any(path.stat().st_size > LARGEST_FILE for path in files):
        return None
    dense, path = finished_policy(folder), factors_file(folder)
    if dense is not None and path in files:
        factors = read_policy(path, folder)
        if factors.contract == dense.contract:
            return factors
    return dense


def _fits(policy: Policy, task: str, game: dict[str, Any]) -> bool:
    """Whether the script can compute it, and whether it is the policy of this task and not too large."""
    c, arrays = policy.contract, policy.tensors.values()
    known = all(step in STEPS or step in c.layers for step in c.network)
    same = c.task == task and c.agents == game["players"] and c.agent is None and not c.by_role and c.rule == "argmax"
    small = policy.parameters * 2 * 4 / 3 < ROOM
    return known and same and small and all(np.abs(one).max(initial=0) <= LARGEST for one in arrays)


def _half(value: np.ndarray) -> dict[str, Any]:
    return {"shape": list(value.shape), "bytes": base64.b64encode(value.astype("<f2").tobytes()).decode()}


def game_data(task: str) -> dict[str, Any] | None:
    """The settings of a game whose rules the page knows."""
    if task.partition("/")[0] not in GAMES:
        return None
    env: Any = envs.make(task)
    if isinstance(env, Foraging) and env.rows * env.cols <= MOST_CELLS:
        places = env.spec.places or env.players
        names = ("rows", "cols", "players", "foods", "coop", "lighter", "horizon")
        sight = None if env.sees_all else env.sight
        return {"name": "lbf", "sight": sight, "places": places, **{name: getattr(env, name) for name in names}}
    if isinstance(env, Orchard) and env.rows * env.cols <= MOST_CELLS:
        names = ("rows", "cols", "fruits", "anyone", "horizon")
        return {"name": "orchard", "players": env.pickers, **{name: getattr(env, name) for name in names}}
    if isinstance(env, Roles) and env.agents**2 <= MOST_CELLS:
        return {"name": "roles", "players": env.agents, "horizon": 1}
    return None
