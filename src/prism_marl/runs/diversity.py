"""How far the agents of a run differ, measured on its newest checkpoint."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.errors import UserError
from prism_marl.measures.record import measure_now
from prism_marl.runs.machine import full_memory_explained, jax_settings
from prism_marl.runs.trained import UNSEEN, load_trained

MOST_EPISODES = 1_000


def diversity(run: Any, *, episodes: int | None = None) -> dict[str, np.ndarray]:
    """Measure how far the agents of a trained team differ, on episodes that training does not use.

    Args:
        run: a run folder, or a ``Run``.
        episodes: how many episodes of each seed provide the observations on which policies are compared. By default
            16, and fewer if there are many observations.

    Returns:
        Arrays with one entry per seed, NaN if a measure does not exist: ``snd`` (system neural diversity),
        ``snd_chance`` (its chance level: separate, randomly initialised networks), ``private_share``,
        ``mask_distance``, ``gradient_cosine``, ``gradients_opposed`` and more (docs/diversity.md); and ``distances``,
        [seeds, agents, agents].
    """
    folder = run.folder if hasattr(run, "folder") else Path(run)
    check_episodes(episodes)
    with jax_settings(), full_memory_explained():
        trainer, state, _ = load_trained(folder)
        with contextlib.closing(trainer):
            return as_columns(measure_now(trainer, state, UNSEEN, episodes))


def check_episodes(episodes: int | None) -> None:
    """Raise for a number of episodes that cannot be played."""
    if episodes is not None and not 1 <= episodes <= MOST_EPISODES:
        raise UserError(f"--episodes: {episodes} is outside 1 to {MOST_EPISODES}; leave it out to play 16 or fewer")


def as_columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Rows of seeds as arrays with an axis of seeds; lists only where all seeds have them."""
    names = dict.fromkeys(name for row in rows for name in row)
    lists = {name for name in names if any(isinstance(row.get(name), list) for row in rows)}
    plain = {name: np.array([row.get(name, np.nan) for row in rows], float) for name in names if name not in lists}
    return plain | {name: np.array([row[name] for row in rows]) for name in lists if all(name in row for row in rows)}
