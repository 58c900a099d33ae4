"""Prism's diversity term parts masks if it is to move agreeing ones apart, and parts them more if asked to. Whose mask
goes which way is another matter: tests/sharing/test_dice.py."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.experiment.presets import preset
from prism_marl.runs.runner import make_trainer
from prism_marl.training.trainer import Trainer

# At the preset's sizes most of the time would go into updates, or into making them fast.
SMALL = {"learner.batch": "8", "learner.embed": "8", "learner.hypernet": "8", "run.seeds": "2"}
STEPS = (400, 1_200)


def mask_distance(trainer: Trainer, state) -> float:
    """Share of all directions in which two agents differ, mean over pairs, layers and seeds."""
    shares = []
    for _, on in jax.device_get(trainer.spectra(state)).values():
        differ = np.asarray(on)[:, :, None] != np.asarray(on)[:, None]  # [seeds, m, m, r]
        pairs = on.shape[1] * (on.shape[1] - 1)
        shares.append(differ.sum(axis=(1, 2)).reshape(on.shape[0], -1) / pairs)
    return float(np.concatenate(shares, axis=1).mean())


def distances(**settings) -> list[float]:
    """Mask distance of teams on roles/4 before training and at each of ``STEPS``."""
    experiment = preset("roles/4", "prism")
    for path, text in SMALL.items():
        experiment = experiment.with_option(path, text)
    trainer = make_trainer(experiment.changed(sharing=replace(experiment.sharing, ties="apart", **settings)))
    state = jax.jit(trainer.init)()
    advance = jax.jit(lambda state, goal: trainer.advance(state, goal, learn=True), donate_argnums=0)
    found = [mask_distance(trainer, state)]
    for goal in STEPS:
        state = advance(state, jnp.int32(goal))
        found.append(mask_distance(trainer, state))
    return found


@pytest.fixture(scope="module")
def by_coefficient() -> dict[float, list[float]]:
    return {beta: distances(diversity=beta) for beta in (0.0, 1.0, 5.0)}


def test_masks_part_during_training(by_coefficient):
    start, middle, end = by_coefficient[5.0]
    assert end > middle > start
    assert end > start + 0.015


def test_masks_part_more_with_a_larger_coefficient(by_coefficient):
    assert by_coefficient[5.0][-1] > by_coefficient[1.0][-1] > by_coefficient[0.0][-1]


def test_masks_stay_without_the_term(by_coefficient):
    assert abs(by_coefficient[0.0][-1] - by_coefficient[0.0][0]) < 0.01
