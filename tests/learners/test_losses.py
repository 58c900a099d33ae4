"""Targets, exploration and the adaptive coefficient against hand-computed numbers and the public implementation."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.learners import losses
from prism_marl.learners.regularisation import Balance

REFERENCE = Path(__file__).parents[1] / "data" / "mixer_and_targets_reference.npz"


@pytest.mark.parametrize("lam", ["0.0", "0.6", "1.0"])
def test_td_lambda_equals_the_reference_implementation(lam):
    data = np.load(REFERENCE)
    columns = [jnp.asarray(data[f"td_{name}"]).T for name in ("reward", "terminated", "mask", "bootstrap")]
    reward, terminated, mask, bootstrap = columns
    ours = losses.td_lambda(reward, terminated > 0, mask > 0, bootstrap, gamma=0.99, lam=float(lam))
    expected = data[f"td_target_lambda_{lam}"].T * np.asarray(mask)  # only real steps enter the loss
    assert np.allclose(ours * mask, expected, atol=1e-5)


def test_one_step_target_by_hand():
    reward, bootstrap = jnp.array([[1.0], [2.0]]), jnp.array([[9.0], [10.0], [20.0]])
    ended = jnp.array([[False], [True]])
    ours = losses.td_lambda(reward, ended, jnp.ones((2, 1), bool), bootstrap, gamma=0.5, lam=0.0)
    assert np.allclose(ours[:, 0], [1 + 0.5 * 10, 2])


def test_lambda_one_is_the_discounted_return_with_a_bootstrap_at_the_time_limit():
    reward, bootstrap = jnp.array([[1.0], [2.0], [4.0]]), jnp.array([[7.0], [7.0], [7.0], [8.0]])
    never = jnp.zeros((3, 1), bool)
    ours = losses.td_lambda(reward, never, ~never, bootstrap, gamma=0.5, lam=1.0)
    assert np.allclose(ours[:, 0], [1 + 1 + 1 + 1, 2 + 2 + 2, 4 + 4])


def test_padding_after_an_end_is_worth_nothing():
    reward = jnp.array([[1.0], [0.0], [0.0]])
    valid, ended = jnp.array([[True], [False], [False]]), jnp.array([[True], [False], [False]])
    ours = losses.td_lambda(reward, ended, valid, jnp.full((4, 1), 100.0), gamma=0.99, lam=0.6)
    assert np.allclose(ours[:, 0], [1, 0, 0])


def test_an_early_time_limit_bootstraps_from_its_own_last_observation():
    valid = jnp.array([[True], [False], [False]])
    bootstrap = jnp.array([[5.0], [10.0], [1e6], [1e6]])
    ours = losses.td_lambda(jnp.ones((3, 1)), ~valid & False, valid, bootstrap, gamma=0.5, lam=0.6)
    assert np.allclose(ours[:, 0], [1 + 0.5 * 10, 0, 0])


@pytest.mark.parametrize(("step", "rate"), [(0, 1.0), (50_000, 0.525), (100_000, 0.05), (900_000, 0.05)])
def test_epsilon_schedule_of_the_battles(step, rate):
    assert np.isclose(losses.epsilon(jnp.int32(step), start=1.0, finish=0.05, anneal=100_000), rate)


def test_masked_mean_counts_only_what_is_valid():
    assert losses.masked_mean(jnp.array([1.0, 3.0, 99.0]), jnp.array([True, True, False])) == 2.0


def test_coefficient_is_beta_while_diversity_is_zero():
    assert Balance.empty(4).push(jnp.float32(3.0), jnp.float32(0.0)).coefficient(5.0) == 5.0


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e4])
def test_scaling_the_diversity_loss_changes_nothing(scale):
    balance = Balance.empty(3)
    for task, diversity in ((1.0, -2.0), (3.0, -4.0)):
        balance = balance.push(jnp.float32(task), jnp.float32(scale * diversity))
    assert np.isclose(balance.coefficient(5.0) * scale * -4.0, 5.0 * (2.0 / 3.0) * -4.0, rtol=1e-5)


def test_the_window_forgets():
    balance = Balance.empty(2)
    for task in (100.0, 1.0, 3.0):
        balance = balance.push(jnp.float32(task), jnp.float32(-1.0))
    assert np.isclose(balance.coefficient(1.0), 2.0)
