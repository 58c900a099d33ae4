"""The program of a worker process that holds one game of StarCraft II: it answers requests until it is told to stop.

The adapter is in another file, because everything here runs in the worker, next to a game that may crash at any time.
"""

import random
from typing import Any

import numpy as np

from prism_marl.envs.workers.channel import Channel, pack, unpack
from prism_marl.envs.workers.process import parent_channel


def configuration(race: str, agents: int, enemies: int) -> dict[str, Any]:
    """The settings of SMACv2's own configurations, which the paper uses; all others keep the package's defaults."""
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
    starts = {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32}
    return {
        "capability_config": {"n_units": agents, "n_enemies": enemies, "team_gen": team, "start_positions": starts},
        "map_name": f"10gen_{race}",
        "conic_fov": False,
        "obs_own_pos": True,
        "use_unit_ranges": True,
        "min_attack_range": 2,
        "continuing_episode": True,  # then the package reports when the time limit ends an episode
    }


def serve(channel: Channel, race: str, agents: int, enemies: int) -> None:
    """Answer requests until ``close`` or until the other end is closed; an error becomes an answer of one line."""
    env: Any = None
    try:
        while True:
            command, argument = unpack(channel.receive(None))[0]
            if command == "close":
                break
            try:
                if env is None:
                    from smacv2.env import StarCraftCapabilityEnvWrapper  # pyright: ignore[reportMissingImports]

                    env = StarCraftCapabilityEnvWrapper(**configuration(race, agents, enemies))
                answer = _answer(env, command, argument)
            except Exception as error:  # the game may raise anything; the parent decides what to do
                answer = pack({"failed": f"{type(error).__name__}: {error}".partition("\n")[0]})
            channel.send(answer)
    except (EOFError, OSError, KeyboardInterrupt):
        pass  # the other end is closed
    finally:
        if env is not None:
            env.close()


def _answer(env: Any, command: str, argument: Any) -> bytes:
    if command == "info":
        return pack(_numbers(env.get_env_info()))
    if command == "reset":
        _seed(env, argument)
        env.reset()
        return pack({}, _observe(env))
    reward, terminated, info = env.step(argument)
    return pack({"reward": float(reward), "over": bool(terminated), "info": _numbers(info)}, _observe(env))


def _numbers(found: dict[str, Any]) -> dict[str, float]:
    """The entries that are numbers."""
    kinds = (int, float, np.integer, np.floating, np.bool_)
    return {name: float(value) for name, value in found.items() if isinstance(value, kinds)}


def _observe(env: Any) -> dict[str, np.ndarray]:
    local = np.stack([np.asarray(row, np.float32) for row in env.get_obs()])
    state, avail = np.asarray(env.get_state(), np.float32), np.asarray(env.get_avail_actions(), bool)
    return {"local": local, "state": state, "avail": avail}


def _seed(env: Any, seed: int) -> None:
    """The seed decides teams, positions and the order of observing; the random numbers of the game cannot be seeded."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the package samples from it
    waiting, number = list(getattr(env, "env_key_to_distribution_map", {}).values()), 0
    while waiting:
        part = waiting.pop()
        if hasattr(part, "rng"):
            part.rng = np.random.default_rng((seed, number))
            number += 1
        waiting += [inner for inner in vars(part).values() if hasattr(inner, "generate")]


def main() -> None:
    """Entry point of the process."""
    (race, agents, enemies), channel = parent_channel()
    serve(channel, race, int(agents), int(enemies))


if __name__ == "__main__":
    main()
