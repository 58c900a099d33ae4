"""Stepping rows of environments on the host, and the random numbers that decide what they play.

Rows are seeds x environments, seed by seed. Random numbers come from (purpose, seed, counter), all of which are in the
training state, so that a continued run draws what an uninterrupted one would have drawn.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from prism_marl.collect.players import Player
from prism_marl.envs.base import AsyncRows, RowsEnv, SyncRows, lost_rows
from prism_marl.types import Observation

FIRST, TRAINING, EVALUATION, WATCHING, MEASURING = range(5)  # purposes of random numbers


def generator(purpose: int, seed: int, counter: int) -> np.random.Generator:
    """Random numbers that depend on these three and nothing else."""
    return np.random.default_rng([purpose, seed, counter])


def episode_seeds(purpose: int, seeds: range, counter: int, shape: tuple[int, ...]) -> np.ndarray:
    """[n, *shape]: what ``RowsEnv.reset`` receives; 31 bits, which every seeding function takes."""
    return np.stack([generator(purpose, seed, counter).integers(0, 2**31, shape) for seed in seeds])


def by_seed(tree: Any, rows: int) -> Any:
    """[n * b, ...] as [n, b, ...]."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, rows, *np.shape(leaf)[1:]), tree)


class StepResult(NamedTuple):
    """One step of the rows of some seeds."""

    number: int  # of the step, from 0
    seeds: slice
    obs: Observation  # from before it: [n, b, ...]
    action: np.ndarray  # [n, b, a, ...]
    extras: Any
    step: Any  # [n * b, ...]


def step_in_turns(env: RowsEnv, seeds: int, player: Player, steps: int | None = None) -> Iterator[StepResult]:
    """Step all rows, seeds in turns: while the rows of some move, actions of the others are computed.

    Before it asks for the next item, the caller must reset the rows that ended with this one. A seed's numbers do
    not depend on the turns: nothing is shared between rows, and a product belongs to one seed anyway.
    """
    parts, able = [slice(0, seeds)], env if isinstance(env, AsyncRows) else SyncRows(env)
    if isinstance(env, AsyncRows) and player.in_turns and seeds > 1:
        parts = [slice(0, -(-seeds // 2)), slice(-(-seeds // 2), seeds)]
    rows, pending = env.number // seeds, {}

    def of(part: slice) -> slice:
        return slice(part.start * rows, part.stop * rows)

    def launch(number: int, part: slice) -> None:
        obs = by_seed(able.observe_rows(of(part)), rows)
        action, extras = player.act(number, part, obs)
        able.begin(of(part), action.reshape(-1, *action.shape[2:]))
        pending[part.start] = (part, obs, action, extras)

    try:
        for part in parts:
            launch(0, part)
        for number in itertools.count():
            for part in parts:
                _, obs, action, extras = pending.pop(part.start)
                yield StepResult(number, part, obs, action, extras, able.finish(of(part)))
                if number + 1 != steps:
                    launch(number + 1, part)
            if number + 1 == steps:
                return
    finally:
        for part, *_ in pending.values():  # an early stop waits for the rows that still move
            able.finish(of(part))


class Finished(NamedTuple):
    """One episode that came to its end."""

    seed: int
    values: dict[str, float]  # return, length, and the environment's metrics at the last step


def play_on(env: RowsEnv, player: Player, starts: np.ndarray) -> Iterator[list[Finished]]:
    """Play on and on, row b of seed n beginning its k-th episode from ``starts[n, b, k]``; after every step of some
    rows, yield the episodes that ended with it. The caller stops when it has seen enough."""
    seeds, rows, most = starts.shape
    flat, played = starts.reshape(seeds * rows, most), np.zeros(seeds * rows, np.int64)
    returns, length = np.zeros(seeds * rows), np.zeros(seeds * rows)
    env.reset(np.arange(seeds * rows), flat[:, 0])
    for _, part, _, _, _, step in step_in_turns(env, seeds, player):
        moved = slice(part.start * rows, part.stop * rows)
        returns[moved] += step.reward
        length[moved] += 1
        over = step.terminated | step.truncated
        ended, lost = np.flatnonzero(over), lost_rows(env)[moved]
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
            forget_rows(player, over, part, seeds, rows)


def forget_rows(player: Player, over: np.ndarray, part: slice, seeds: int, rows: int) -> None:
    """Tell a player which rows of some seeds begin a new episode."""
    flags = np.zeros((seeds, rows), bool)
    flags[part] = over.reshape(-1, rows)
    player.forget(flags)


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
