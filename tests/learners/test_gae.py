"""Advantages by hand: where episodes go on, end, run out of time and begin again inside a rollout."""

import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.learners.gae import advantages


def test_a_termination_a_truncation_and_a_restart_by_hand():
    """gamma 0.5, lambda 0.5, one row of five steps. Step 1 terminates, step 3 is cut by the clock.

    Errors: 1 + .5*20 - 10 = 1 | 2 - 20 = -18 | 3 + .5*40 - 30 = -7 | 4 + .5*8 - 40 = -32 | 5 + .5*6 - 50 = -42.
    """
    column = lambda *numbers: jnp.asarray(numbers, jnp.float32)[:, None]  # noqa: E731
    flags = lambda *places: (jnp.arange(5)[:, None] == jnp.asarray(places)).any(axis=1, keepdims=True)  # noqa: E731
    found = advantages(
        column(1, 2, 3, 4, 5),
        flags(1),
        flags(1, 3),
        column(10, 20, 30, 40, 50),
        column(20, 99, 40, 8, 6),  # what truly followed: 8 was seen before the reset, 50 after it
        gamma=0.5,
        lam=0.5,
    )
    np.testing.assert_allclose(found[:, 0], [1 + 0.25 * -18, -18, -7 + 0.25 * -32, -32, -42], rtol=1e-6)


@pytest.mark.parametrize(("lam", "wanted"), [(0.0, [0.0, 1.0]), (1.0, [0.5, 1.0])])
def test_lambda_zero_is_the_one_step_error_and_one_is_the_return(lam, wanted):
    """Two agents with rewards of their own: nobody's reward reaches the other."""
    reward = jnp.asarray([[[1.0, 0.0]], [[1.0, 0.0]]])
    never = jnp.zeros((2, 1, 1), bool)
    value = jnp.asarray([[[1.0, 0.0]], [[0.0, 0.0]]])
    following = jnp.asarray([[[0.0, 0.0]], [[0.0, 0.0]]])
    found = advantages(reward, never, never, value, following, gamma=0.5, lam=lam)
    np.testing.assert_allclose(found[:, 0, 0], wanted)
    np.testing.assert_array_equal(found[..., 1], 0)
