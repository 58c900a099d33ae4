"""Adam that lets arrays sleep, and LoRASA's two phases as QMIX runs them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.collect.compiled import CompiledCollector
from prism_marl.envs import make
from prism_marl.learners import QMix, QMixLearner, optimisers
from prism_marl.learners.base import Clock
from prism_marl.learners.value import Networks
from prism_marl.sharing import METHODS, FuPSID, LoRASA
from prism_marl.sharing.base import map_layers
from prism_marl.sharing.lorasa import LowRankLinear

LR = 0.01


def gradients(number: int) -> list[dict]:
    rng = np.random.default_rng(0)
    return [
        {"a": jnp.asarray(rng.normal(size=3), jnp.float32), "b": jnp.asarray(rng.normal(size=()))}
        for _ in range(number)
    ]


def run(optimiser: optax.GradientTransformation, steps: list[dict]) -> list[dict]:
    state, moves = optimiser.init(steps[0]), []
    for gradient in steps:
        updates, state = jax.jit(optimiser.update)(gradient, state)
        moves.append(updates)
    return moves


def test_awake_it_is_adam():
    steps = gradients(6)
    for ours, theirs in zip(
        run(optimisers.adam(LR, LoRASA()), steps), run(optax.adam(LR, eps=1e-8), steps), strict=True
    ):
        for name in ours:
            assert_allclose(ours[name], theirs[name], rtol=1e-5)


def test_a_late_starter_begins_as_under_a_new_optimiser():
    late = gradients(4)
    asleep = [step | {"a": jnp.zeros(3)} for step in gradients(5)]
    moves = run(optimisers.adam(LR, LoRASA()), asleep + late)
    assert all(not np.any(move["a"]) for move in moves[:5])
    fresh = run(optax.adam(LR, eps=1e-8), late)
    assert_allclose([move["a"] for move in moves[5:]], [move["a"] for move in fresh], rtol=1e-5)


def test_an_early_leaver_does_not_drift_with_its_momentum():
    moves = run(optimisers.adam(LR, LoRASA()), gradients(3) + [step | {"a": jnp.zeros(3)} for step in gradients(2)])
    assert np.all(moves[2]["a"] != 0) and np.all(moves[3]["a"] == 0) and np.all(moves[4]["a"] == 0)
    assert all(move["b"] != 0 for move in moves)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"lorasa"}))
def test_methods_without_phases_keep_the_plain_optimiser(method):
    state = optimisers.adam(LR, METHODS[method]()).init({"a": jnp.zeros(3)})
    assert isinstance(state[0], optax.ScaleByAdamState)


SWITCH = 100
SETTINGS = QMix(lr=LR, clip=1e-3, batch=16, buffer=16, embed=4, hypernet=4)  # every gradient is clipped, hard


@pytest.fixture(scope="module")
def batch():
    env = make("roles/3")
    learner = QMixLearner(SETTINGS, LoRASA(), env.spec, width=8)
    agent = learner.build_agent(jax.random.key(0))
    agents, keys = jax.tree.map(lambda leaf: leaf[None], agent), jax.random.key(1)[None]
    zero, clock = jnp.zeros(1, jnp.int32), Clock(jnp.int32(0), jnp.int32(0), ())

    @jax.jit
    def played(keys):
        found = CompiledCollector(env, 0, 1, 16).collect(learner, agents, (), keys, zero, clock, "random")[1]
        kept = learner.add(learner.buffer(), jax.tree.map(lambda leaf: leaf[0], found)).storage
        return learner.episodes.restored(kept)

    return played(keys)


def learners():
    spec = make("roles/3").spec
    return (QMixLearner(SETTINGS, sharing, spec, width=8) for sharing in (LoRASA(switch_step=SWITCH), FuPSID()))


def shared_part(network):
    """The plain network inside one with corrections."""
    return map_layers(lambda _, layer: layer.shared, network, LowRankLinear)


def adapters(network) -> list:
    everything, shared = (jax.tree_util.tree_leaves_with_path(part) for part in (network, shared_part(network)))
    assert len(shared) < len(everything)
    return [leaf for path, leaf in everything if ".shared" not in jax.tree_util.keystr(path)]


def test_first_phase_is_plain_sharing_and_the_second_starts_afresh(batch):
    adapted, plain = learners()
    start = jax.jit(adapted.init)(jax.random.key(0))
    networks = Networks(shared_part(start.online.agent), start.online.mixer)
    other = eqx.tree_at(lambda s: (s.online, s.target), jax.jit(plain.init)(jax.random.key(0)), (networks, networks))

    @jax.jit
    def both(state, other):
        step = lambda learner: lambda s, n: learner.improve(s, batch, n)  # noqa: E731
        state, metrics = jax.lax.scan(step(adapted), state, SWITCH - 5 + jnp.arange(5))
        other, others = jax.lax.scan(step(plain), other, SWITCH - 5 + jnp.arange(5))
        return state, other, metrics["grad_norm"], others["grad_norm"]

    first, other, norm, others = both(start, other)
    assert_allclose(norm, others, rtol=1e-4)  # corrections take no part in the norm that is clipped
    assert np.all(norm > SETTINGS.clip)
    for ours, theirs in zip(
        jax.tree.leaves((shared_part(first.online.agent), first.online.mixer)),
        jax.tree.leaves(other.online),
        strict=True,
    ):
        assert_allclose(ours, theirs, atol=1e-5)
    for old, new in zip(adapters(start.online.agent), adapters(first.online.agent), strict=True):
        assert_array_equal(old, new)

    second, _ = jax.jit(lambda s: adapted.improve(s, batch, jnp.int32(SWITCH)))(first)
    for old, new in zip(*(jax.tree.leaves(shared_part(s.online.agent)) for s in (first, second)), strict=True):
        assert_array_equal(old, new)
    moved = (second.online.agent.fc4.down - first.online.agent.fc4.down, second.online.agent.fc4.shift)
    for move in moved:  # the first step of a new Adam has the length of the learning rate
        assert np.abs(move).max() == pytest.approx(LR, rel=1e-2)
    assert not eqx.tree_equal(first.online.mixer, second.online.mixer)  # the mixer learns all the time
