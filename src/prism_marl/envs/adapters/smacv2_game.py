"""The process that holds one game of StarCraft II: it answers questions about SMACv2 until it is told to stop.

Kept apart from the adapter because everything here runs in the child, next to a game that may crash at any time.
"""

import random
from multiprocessing.connection import Connection
from typing import Any

import numpy as np


def configuration(race: str, agents: int, enemies: int) -> dict[str, Any]:
    """The settings of SMACv2's shipped configurations, which the paper uses; all others are the package's defaults."""
    units = {
        "terran": ["marine", "marauder", "medivac"],
        "protoss": ["stalker", "zealot", "colossus"],
        "zerg": ["zergling", "hydralisk", "baneling"],
    }
    never_alone = {"terran": ["medivac"], "protoss": [], "zerg": ["baneling"]}
    team = {
        "dist_type": "weighted_teams",
        "unit_types": units[race],
        "weights": [0.45, 0.45, 0.1],
        "exception_unit_types": never_alone[race],
        "observe": True,
    }
    places = {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32}
    return {
        "capability_config": {"n_units": agents, "n_enemies": enemies, "team_gen": team, "start_positions": places},
        "map_name": f"10gen_{race}",
        "conic_fov": False,
        "obs_own_pos": True,
        "use_unit_ranges": True,
        "min_attack_range": 2,
        "continuing_episode": True,  # the game then says when it ends an episode because of the clock
    }


def serve(pipe: Connection, race: str, agents: int, enemies: int) -> None:
    """Answer (True, result) or (False, what went wrong in one line) to each request until the pipe closes."""
    env: Any = None
    try:
        while True:
            verb, argument = pipe.recv()
            if verb == "close":
                break
            try:
                if env is None:
                    from smacv2.env import StarCraftCapabilityEnvWrapper  # pyright: ignore[reportMissingImports]

                    env = StarCraftCapabilityEnvWrapper(**configuration(race, agents, enemies))
                pipe.send((True, _answer(env, verb, argument)))
            except Exception as error:  # whatever the game does is for the other side to judge
                pipe.send((False, f"{type(error).__name__}: {error}".partition("\n")[0]))
    except (EOFError, OSError, KeyboardInterrupt):
        pass  # the other side is gone
    finally:
        if env is not None:
            env.close()


def _answer(env: Any, verb: str, argument: Any) -> Any:
    if verb == "info":
        return dict(env.get_env_info())
    if verb == "reset":
        _seed(env, argument)
        env.reset()
        return _look(env)
    reward, terminated, info = env.step(argument)
    return _look(env), float(reward), bool(terminated), dict(info)


def _look(env: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    local = np.stack([np.asarray(row, np.float32) for row in env.get_obs()])
    return local, np.asarray(env.get_state(), np.float32), np.asarray(env.get_avail_actions(), bool)


def _seed(env: Any, seed: int) -> None:
    """Teams, places and the order of looking follow the seed; the game's own dice cannot be reached."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the package draws from it
    waiting, number = list(getattr(env, "env_key_to_distribution_map", {}).values()), 0
    while waiting:
        part = waiting.pop()
        if hasattr(part, "rng"):
            part.rng = np.random.default_rng((seed, number))
            number += 1
        waiting += [inner for inner in vars(part).values() if hasattr(inner, "generate")]
