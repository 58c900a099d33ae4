"""Standardised rewards: what a batch counts, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.learners.rewards import RewardScale

HORIZON = 5


def batch(lengths: list[int], rewards: list[list[float]]):
    """Rewards and ``valid`` of padded episodes, [t, b]."""
    reward, valid = np.zeros((HORIZON, len(lengths)), np.float32), np.zeros((HORIZON, len(lengths)), bool)
    for episode, (length, values) in enumerate(zip(lengths, rewards, strict=True)):
        reward[:length, episode], valid[:length, episode] = values, True
    return jnp.asarray(reward), jnp.asarray(valid)


def test_a_batch_is_cut_to_its_longest_episode_and_counts_the_padding_of_shorter_ones():
    reward, valid = batch([3, 1], [[1.0, 0.0, 2.0], [4.0]])
    scale = RewardScale.fresh().update(reward, valid)
    counted = np.array([1, 0, 2, 4, 0, 0], np.float32)  # three steps of two episodes; steps four and five of nobody
    start = 1e-4  # EPyMARL's count begins here, with mean 0 and variance 1
    total = start + 6
    mean = counted.mean() * 6 / total
    spread = start + counted.var(ddof=1) * 6 + counted.mean() ** 2 * start * 6 / total
    assert float(scale.count) == pytest.approx(total)
    assert float(scale.mean) == pytest.approx(mean, rel=1e-5)
    assert float(scale.variance) == pytest.approx(spread / total, rel=1e-5)


def test_batches_are_merged_as_if_they_were_one():
    first, second = batch([2, 2], [[1.0, 3.0], [0.0, 2.0]]), batch([4, 4], [[1.0, 0.0, 5.0, 1.0], [2.0, 2.0, 0.0, 1.0]])
    scale = RewardScale.fresh().update(*first).update(*second)
    together = np.concatenate([np.asarray(first[0])[:2].ravel(), np.asarray(second[0])[:4].ravel()])
    assert float(scale.mean) == pytest.approx(together.mean(), rel=1e-3)
    standard = np.asarray(scale.apply(jnp.asarray(together)))
    assert standard.mean() == pytest.approx(0, abs=1e-3) and standard.std() == pytest.approx(1, rel=0.1)
