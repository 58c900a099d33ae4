"""Playing in environments that are stepped in batches: an interval of training, and whole episodes, in numpy.

Rows are seeds x environments, seed by seed. Random numbers come from (purpose, seed, counter), all of which are in the
training state, so that a continued run draws what an uninterrupted one would have drawn.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from prism_marl.envs.vector import VectorEnv, lost_rows
from prism_marl.transitions import Transition
from prism_marl.types import EnvSpec

Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Actions [n, b, a, u] of n seeds from local [n, b, a, o] and state [n, b, s]."""

FIRST, TRAINING, EVALUATION, WATCHING = range(4)  # purposes of random numbers


def generator(purpose: int, seed: int, counter: int) -> np.random.Generator:
    """Random numbers that depend on these three and nothing else."""
    return np.random.default_rng([purpose, seed, counter])


def episode_seeds(purpose: int, seeds: range, counter: int, shape: tuple[int, ...]) -> np.ndarray:
    """[n, *shape]: what ``VectorEnv.reset`` receives; 31 bits, which every seeding function takes."""
    return np.stack([generator(purpose, seed, counter).integers(0, 2**31, shape) for seed in seeds])


class Draws(NamedTuple):
    """The randomness of one interval."""

    noise: np.ndarray  # [n, t, b, a, u], standard normal, or uniform in [-1, 1] where actions are random
    starts: np.ndarray  # [n, t, b], for episodes that begin after step t


def draw(spec: EnvSpec, seeds: range, counter: int, steps: int, rows: int, *, uniform: bool) -> Draws:
    """The randomness of interval number ``counter``."""
    noise, starts = [], []
    for seed in seeds:
        numbers = generator(TRAINING, seed, counter)
        shape = (steps, rows, spec.agents, spec.actions)
        if uniform:
            noise.append(2 * numbers.random(shape, np.float32) - 1)
        else:
            noise.append(numbers.standard_normal(shape, np.float32))
        starts.append(numbers.integers(0, 2**31, (steps, rows)))
    return Draws(np.stack(noise), np.stack(starts))


def collect(env: VectorEnv, stored: Transition, draws: Draws, act: Act | None, explore: float) -> Transition:
    """Play one interval from where the rows stand; transitions [n, t * b, ...], those of one step side by side.

    Without ``act`` the noise itself is played. The arrays are fresh: the device may still read those of before.
    """
    seeds, steps, rows = draws.starts.shape
    record: Any = jax.tree.map(lambda leaf: np.empty((seeds, steps, rows, *leaf.shape), leaf.dtype), stored)

    def split(array: np.ndarray) -> np.ndarray:
        return array.reshape(seeds, rows, *array.shape[1:])

    def keep(local: np.ndarray, state: np.ndarray, obs: Any, t: int) -> None:
        if local.shape[3]:
            local[:, t] = split(obs.local)
        if state.shape[3]:
            state[:, t] = split(obs.state)

    obs: Any = env.observe()
    for t in range(steps):
        keep(record.local, record.state, obs, t)
        action = draws.noise[:, t]
        if act is not None:
            action = np.clip(act(split(obs.local), split(obs.state)) + np.float32(explore) * action, -1, 1)
        step: Any = env.step(action.reshape(seeds * rows, *action.shape[2:]))
        over = step.terminated | step.truncated
        record.action[:, t], record.reward[:, t] = action, split(step.reward)
        record.done[:, t], record.terminated[:, t] = split(over), split(step.terminated)
        keep(record.next_local, record.next_state, step.obs, t)
        obs = step.obs
        if over.any():
            ended = np.flatnonzero(over)
            env.reset(ended, draws.starts[:, t].reshape(-1)[ended])
            obs = env.observe()
    return jax.tree.map(lambda leaf: leaf.reshape(seeds, steps * rows, *leaf.shape[3:]), record)


class Finished(NamedTuple):
    """One episode that came to its end."""

    seed: int
    values: dict[str, float]  # return, length, and the environment's metrics at the last step


def play(env: VectorEnv, act: Act, starts: np.ndarray) -> Iterator[list[Finished]]:
    """Play on and on, row b of seed n beginning its k-th episode from ``starts[n, b, k]``; after every step, yield the
    episodes that ended with it. The caller stops when it has seen enough."""
    seeds, rows, most = starts.shape
    everything = np.arange(seeds * rows)
    flat, played = starts.reshape(seeds * rows, most), np.zeros(seeds * rows, np.int64)
    returns, length = np.zeros(seeds * rows), np.zeros(seeds * rows)
    env.reset(everything, flat[:, 0])
    obs: Any = env.observe()
    while True:
        action = act(obs.local.reshape(seeds, rows, *obs.local.shape[1:]), obs.state.reshape(seeds, rows, -1))
        step: Any = env.step(action.reshape(seeds * rows, *action.shape[2:]))
        returns += step.reward
        length += 1
        ended = np.flatnonzero(step.terminated | step.truncated)
        lost = lost_rows(env)
        yield [
            Finished(
                int(row) // rows,
                {"return": float(returns[row]), "length": float(length[row])}
                | {name: float(values[row]) for name, values in step.metrics.items()},
            )
            for row in ended
            if not lost[row]
        ]
        obs = step.obs
        if ended.size:
            returns[ended], length[ended] = 0, 0
            played[ended] += 1
            env.reset(ended, flat[ended, played[ended] % most])
            obs = env.observe()


def first_ended(playing: Iterator[list[Finished]], seeds: int, number: int) -> list[list[dict[str, float]]]:
    """For every seed the episodes that ended first, at least ``number`` of them; all that end in one step count."""
    ended: list[list[dict[str, float]]] = [[] for _ in range(seeds)]
    for finished in playing:
        unsure = [len(values) < number for values in ended]
        for episode in finished:
            if unsure[episode.seed]:
                ended[episode.seed].append(episode.values)
        if all(len(values) >= number for values in ended):
            break
    return ended
