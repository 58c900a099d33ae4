"""Playing in environments that are stepped in batches: an interval of training, and whole episodes, in numpy.

Rows are seeds x environments, seed by seed. Random numbers come from (purpose, seed, counter), all of which are in the
training state, so that a continued run draws what an uninterrupted one would have drawn.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from prism_marl.buffers.nstep import Transition
from prism_marl.envs.base import AsyncRows, RowsEnv, SyncRows, lost_rows
from prism_marl.types import EnvSpec

Act = Callable[[slice, np.ndarray, np.ndarray], np.ndarray]
"""Actions [n, b, a, u] of some seeds from local [n, b, a, o] and state [n, b, s]."""

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


class StepResult(NamedTuple):
    """One step of the rows of some seeds."""

    number: int  # of the step, from 0
    seeds: slice
    obs: Any  # from before it
    action: np.ndarray  # [n, b, a, u]
    step: Any


Choose = Callable[[int, slice, Any], np.ndarray]
"""Actions [n, b, a, u] from the number of the step, the seeds that move and what their rows see."""


def step_in_turns(env: RowsEnv, seeds: int, choose: Choose, steps: int | None = None) -> Iterator[StepResult]:
    """Step all rows, seeds in turns: while the rows of some move, actions of the others are computed.

    Whoever asks for the next item has first to reset the rows that ended with this one. A seed's numbers do not depend
    on the turns: nothing is shared between rows, and a product belongs to one seed anyway.
    """
    parts, able = [slice(0, seeds)], env if isinstance(env, AsyncRows) else SyncRows(env)
    if isinstance(env, AsyncRows) and seeds > 1:
        parts = [slice(0, -(-seeds // 2)), slice(-(-seeds // 2), seeds)]
    rows, away = env.number // seeds, {}

    def of(part: slice) -> slice:
        return slice(part.start * rows, part.stop * rows)

    def launch(number: int, part: slice) -> None:
        obs = able.observe_rows(of(part))
        action = choose(number, part, obs)
        able.begin(of(part), action.reshape(-1, *action.shape[2:]))
        away[part.start] = (part, obs, action)

    try:
        for part in parts:
            launch(0, part)
        for number in itertools.count():
            for part in parts:
                _, obs, action = away.pop(part.start)
                yield StepResult(number, part, obs, action, able.finish(of(part)))
                if number + 1 != steps:
                    launch(number + 1, part)
            if number + 1 == steps:
                return
    finally:
        for part, *_ in away.values():  # whoever stops early leaves nobody on the way
            able.finish(of(part))


def collect(env: RowsEnv, stored: Transition, draws: Draws, act: Act | None, explore: float) -> Transition:
    """Play one interval from where the rows stand; transitions [n, t * b, ...], those of one step side by side.

    Without ``act`` the noise itself is played. The arrays are fresh: the device may still read those of before.
    """
    seeds, steps, rows = draws.starts.shape
    record: Any = jax.tree.map(lambda leaf: np.empty((seeds, steps, rows, *leaf.shape), leaf.dtype), stored)

    def split(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, rows, *array.shape[1:])

    def keep(local: np.ndarray, state: np.ndarray, obs: Any, place: tuple[slice, int]) -> None:
        if local.shape[3]:
            local[place] = split(obs.local)
        if state.shape[3]:
            state[place] = split(obs.state)

    def choose(number: int, part: slice, obs: Any) -> np.ndarray:
        noise = draws.noise[part, number]
        if act is None:
            return noise
        return np.clip(act(part, split(obs.local), split(obs.state)) + np.float32(explore) * noise, -1, 1)

    for number, part, obs, action, step in step_in_turns(env, seeds, choose, steps):
        place, over = (part, number), step.terminated | step.truncated
        keep(record.local, record.state, obs, place)
        record.action[place], record.reward[place] = action, split(step.reward)
        record.done[place], record.terminated[place] = split(over), split(step.terminated)
        keep(record.next_local, record.next_state, step.obs, place)
        if over.any():
            ended = np.flatnonzero(over)
            env.reset(part.start * rows + ended, draws.starts[place].reshape(-1)[ended])
    return jax.tree.map(lambda leaf: leaf.reshape(seeds, steps * rows, *leaf.shape[3:]), record)


class Finished(NamedTuple):
    """One episode that came to its end."""

    seed: int
    values: dict[str, float]  # return, length, and the environment's metrics at the last step


def play(env: RowsEnv, act: Act, starts: np.ndarray) -> Iterator[list[Finished]]:
    """Play on and on, row b of seed n beginning its k-th episode from ``starts[n, b, k]``; after every step of some
    rows, yield the episodes that ended with it. The caller stops when it has seen enough."""
    seeds, rows, most = starts.shape
    flat, played = starts.reshape(seeds * rows, most), np.zeros(seeds * rows, np.int64)
    returns, length = np.zeros(seeds * rows), np.zeros(seeds * rows)
    env.reset(np.arange(seeds * rows), flat[:, 0])

    def choose(number: int, part: slice, obs: Any) -> np.ndarray:
        state = obs.state.reshape(-1, rows, obs.state.shape[-1])
        return act(part, obs.local.reshape(-1, rows, *obs.local.shape[1:]), state)

    for _, part, _, _, step in step_in_turns(env, seeds, choose):
        moved = slice(part.start * rows, part.stop * rows)
        returns[moved] += step.reward
        length[moved] += 1
        ended, lost = np.flatnonzero(step.terminated | step.truncated), lost_rows(env)[moved]
        yield [
            Finished(
                int(moved.start + row) // rows,
                {"return": float(returns[moved][row]), "length": float(length[moved][row])}
                | {name: float(values[row]) for name, values in step.metrics.items()},
            )
            for row in ended
            if not lost[row]
        ]
        if ended.size:
            ended += moved.start
            returns[ended], length[ended] = 0, 0
            played[ended] += 1
            env.reset(ended, flat[ended, played[ended] % most])


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
