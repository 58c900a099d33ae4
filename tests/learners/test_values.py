"""VDN and IQL against a slow computation of the same numbers: whose values are regressed, and on which targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_qmix import ENDS, LENGTHS, SPEC, batch_of, leaves_close, slow_values, started

from prism_marl.learners import IQL, VDN, losses
from prism_marl.sharing import FuPSID

SIZES = {"batch": 4, "buffer": 8, "gamma": 0.9, "td_lambda": 0.6, "time_limit_ends": False}


def make(settings, **changes):
    return settings(**(SIZES | changes)).learner(FuPSID(), SPEC, width=8)


def best_values(learner, state, batch) -> np.ndarray:
    """Double Q: the target network's value of the online network's best legal action, [b, t + 1, a]."""
    online = np.asarray(slow_values(learner, state.online.agent, batch))
    target = np.asarray(slow_values(learner, state.target.agent, batch))
    best = np.where(np.asarray(batch.obs.avail), online, -np.inf).argmax(-1)
    assert (best != online.argmax(-1)).any()  # legality must matter
    return np.take_along_axis(target, best[..., None], axis=-1)[..., 0]


def recursion(reward, bootstrap, length: int, ends: bool, lam: float) -> np.ndarray:
    """TD(lambda) of one episode and one stream of values, backwards."""
    out, following = np.zeros(SPEC.horizon), 0.0 if ends else float(bootstrap[length])
    for t in reversed(range(length)):
        after = 0.0 if ends and t == length - 1 else float(bootstrap[t + 1])
        following = out[t] = float(reward[t]) + 0.9 * ((1 - lam) * after + lam * following)
    return out


def targets_of(learner, state, batch) -> np.ndarray:
    """[b, t] of VDN, whose stream is the sum; [b, t, a] of IQL, one stream for each agent."""
    best, lam = best_values(learner, state, batch), learner.settings.td_lambda
    streams = best.sum(-1, keepdims=True) if isinstance(learner.settings, VDN) else best
    found = np.stack(
        [
            np.stack(
                [
                    recursion(batch.reward[b], streams[b, :, k], LENGTHS[b], ENDS[b], lam)
                    for k in range(streams.shape[2])
                ],
                axis=-1,
            )
            for b in range(len(LENGTHS))
        ]
    )
    return found[..., 0] if isinstance(learner.settings, VDN) else found


def slow_loss(learner, online, targets, batch):
    values = slow_values(learner, online.agent, batch)[:, :-1]
    chosen = jnp.take_along_axis(values, batch.action[..., None].astype(int), axis=-1)[..., 0]
    chosen = chosen.sum(-1) if isinstance(learner.settings, VDN) else chosen
    squares = [jnp.sum((chosen[b, :length] - targets[b, :length]) ** 2) for b, length in enumerate(LENGTHS)]
    return 0.5 * sum(squares) / (sum(LENGTHS) * (1 if isinstance(learner.settings, VDN) else SPEC.agents))


@pytest.mark.parametrize("changes", [{}, {"last_action": True, "td_lambda": 0.0}], ids=["lambda", "one-step"])
@pytest.mark.parametrize("settings", [VDN, IQL])
def test_loss_and_gradient_equal_the_slow_computation(settings, changes):
    learner, batch = make(settings, **changes), batch_of()
    state = started(learner)
    targets = targets_of(learner, state, batch)
    loss, gradient = jax.value_and_grad(lambda online: slow_loss(learner, online, targets, batch))(state.online)
    after, metrics = jax.jit(learner.improve)(state, batch, jnp.int32(0))
    assert np.isclose(metrics["td_loss"], loss, rtol=1e-4)
    norm = np.sqrt(sum(float(np.vdot(leaf, leaf)) for leaf in jax.tree.leaves(gradient)))
    assert np.isclose(metrics["grad_norm"], norm, rtol=1e-3)
    assert not leaves_close(after.online.agent, state.online.agent, atol=1e-6)
    assert jax.tree.leaves(after.online.mixer) == []  # nothing is learned besides the agents


def test_the_value_of_a_team_under_vdn_is_the_sum_by_hand():
    values = jnp.asarray([[[1.0, 2.0, -4.0], [0.5, 0.0, 0.25]]])
    assert make(VDN).mix(None, values, jnp.zeros((1, 2, 5))).tolist() == [[-1.0, 0.75]]


def test_every_agent_has_its_own_target_under_iql_by_hand():
    """Two steps that end truly, one-step targets: r_0 + 0.9 * the agent's own next value, then r_1 alone."""
    learner = make(IQL, td_lambda=0.0)
    batch = batch_of()
    flags = jnp.asarray([[True], [True], [False], [False], [False]])
    episode = batch._replace(
        reward=jnp.asarray([[2.0], [3.0], [0.0], [0.0], [0.0]]),
        valid=flags,
        terminated=(jnp.arange(5) == 1)[:, None],
    )
    bootstrap = jnp.arange(18.0).reshape(6, 1, 3)  # step 1: 3, 4 and 5
    targets = learner.returns(episode, bootstrap)
    assert targets.shape == (5, 1, 3)
    np.testing.assert_allclose(targets[:2, 0], [[2 + 0.9 * 3, 2 + 0.9 * 4, 2 + 0.9 * 5], [3, 3, 3]], rtol=1e-6)
    # Another agent's values change nothing for the first.
    other = learner.returns(episode, bootstrap.at[..., 1:].add(100.0))
    np.testing.assert_array_equal(other[..., 0], targets[..., 0])
    alone = losses.td_lambda(episode.reward, episode.terminated, episode.valid, bootstrap[..., 0], gamma=0.9, lam=0.0)
    np.testing.assert_allclose(targets[..., 0], alone)


def test_the_team_of_vdn_is_punished_together_and_that_of_iql_each_for_itself():
    """Only the first agent's value is wrong: VDN moves the values of all, IQL's gradient is that agent's own."""
    right = jnp.asarray([[[0.0, 1.0, 1.0]]])
    wanted = {VDN: jnp.full((1, 1), 3.0), IQL: jnp.ones((1, 1, 3))}
    for settings, target in wanted.items():
        learner = make(settings)
        slope = jax.grad(lambda values: jnp.sum((learner.mix(None, values, None) - target) ** 2))(right)  # noqa: B023
        assert slope[0, 0].tolist() == ([-2.0, -2.0, -2.0] if settings is VDN else [-2.0, 0.0, 0.0])
