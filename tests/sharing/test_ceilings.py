"""What each sharing method can do and what it cannot: `roles/4` trained with QMIX.

Everybody sees the same and is paid for playing its own index. k networks that differ can play k different actions, each
of them right for at most one agent: k/n is the most that k clusters can earn, however many agents are in each.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.sharing import METHODS, RoleLinear
from prism_marl.sharing.pruned import NodeMaskedLinear
from prism_marl.training.build import make_trainer

AGENTS = 4
CEILINGS = dict.fromkeys(METHODS, 1.0) | {"fups": 1 / AGENTS, "seps": 2 / AGENTS, "adaps": 2 / AGENTS}
EVALUATIONS = 4
SHORT = {
    "run.steps": "2400",
    "run.seeds": "2",
    "run.eval_episodes": "1",  # nothing is random in a greedy episode
    "learner.lr": "0.005",
    "learner.batch": "32",
    "learner.episodes_per_update": "8",  # 300 gradient steps
    "learner.epsilon_finish": "0.5",  # the action that an agent lacks stays in the data
}


OWN = {
    "lorasa": {"sharing.switch_step": "1200"},  # half of the steps for each phase
    "hypermarl": {"sharing.hidden": "16"},  # the weights are generated at every step, and slowly in tests
}


def trained(method: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns [evaluations, seeds], the first before training, and the identity of each agent [seeds, agents]."""
    experiment = preset(f"roles/{AGENTS}", method)
    for path, text in (SHORT | OWN.get(method, {})).items():
        experiment = experiment.with_option(path, text)
    returns, clusters = jax.device_get(_training(experiment)())
    return np.asarray(returns), np.asarray(clusters)


def _training(experiment: Experiment):
    """The whole run as one program, since most of the time goes into compiling."""
    trainer = make_trainer(experiment)
    first, total = experiment.sharing.pretraining_steps(), experiment.run.steps

    def run():
        state = trainer.init()
        if first:
            state = trainer.prepare(trainer.advance(state, jnp.int32(first), learn=False))

        def stretch(state, number):
            if experiment.sharing.refresh_interval():  # not on time, but as often as it matters here
                state = trainer.refresh(state)
            state = trainer.advance(state, first + (total - first) * number // EVALUATIONS, learn=True)
            return state, trainer.evaluate(state, number)["return"]

        state, returns = jax.lax.scan(stretch, state, jnp.arange(EVALUATIONS + 1))
        clusters = state.seeds.state.online.agent.clusters
        return returns, jnp.arange(AGENTS)[None] if clusters is None else clusters

    quickly = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(run).lower().compile(quickly)


# What these can do follows from their layers, which are trained below without the learner and within a second.
CONTROLS = ("spectrum_delta", "random_spectrum", "film", "multihead")
BY_THEIR_LAYERS = (*CONTROLS, "experts", "cash", "hps", "dico", "hetdps")


@pytest.mark.parametrize("method", [method for method in METHODS if method not in BY_THEIR_LAYERS])
def test_ceiling_is_reached_and_never_exceeded(method: str):
    returns, identity = trained(method)
    if method in ("seps", "adaps"):
        # No two of these agents are more alike than others: chance decides, and any two clusters that exist will do.
        assert all(set(labels) == {0, 1} for labels in identity.tolist())
    assert returns.max() <= CEILINGS[method]
    # The better of two seeds: now and then QMIX itself stops early, with a mixer that has lost interest in one agent
    # (a weight near 0, because a monotone mixer has no better use for values that are ordered the wrong way round).
    assert returns[-1].max() == CEILINGS[method]


def test_clusters_earn_their_number_whatever_their_sizes():
    """Every way to put the agents into clusters, every choice of one action per cluster."""
    ways = list(itertools.product(range(AGENTS), repeat=AGENTS))
    actions = np.asarray(ways)
    for labels in ways:
        paid = np.mean(actions[:, list(labels)] == np.arange(AGENTS), axis=1)
        assert paid.max() == len(set(labels)) / AGENTS


WITHOUT_ID = CEILINGS | {"fups_id": 1 / AGENTS, "fups_id_svd": 1 / AGENTS, "gradps": 1 / AGENTS}


@pytest.mark.parametrize("method", METHODS)
def test_private_parts_alone_tell_agents_apart(method: str):
    """The id in the input solves the game whatever the layers do; here it is left out. Two layers, the same input for
    everybody, and each agent's own index to be learned as a class."""
    sharing = METHODS[method]()
    if method == "lorasa":
        sharing = sharing.changed(switch_step=0)  # only the corrections learn, on top of random shared weights
    identities = min(sharing.identities(AGENTS, AGENTS), AGENTS)
    identity = jnp.arange(AGENTS) % identities
    optimiser = optax.adam(0.02)

    def learn(key):
        layers = [
            sharing.linear(
                fan_in, fan_out, identities=identities, key=jax.random.fold_in(key, depth), kind=kind, depth=depth
            )
            for depth, (fan_in, fan_out, kind) in enumerate([(8, 24, "hidden"), (24, AGENTS, "values")])
        ]
        layers = [_with_masks(layer) if method == "adaps" else layer for layer in layers]
        start, fixed = eqx.partition(layers, eqx.is_inexact_array)
        x = jnp.broadcast_to(jax.random.normal(key, (8,)), (AGENTS, 8))

        def scores(trained):
            first, last = eqx.combine(trained, fixed)
            return last(jax.nn.relu(first(x, identity)), identity)

        def step(carry, _):
            trained, moments = carry
            gradient = jax.grad(lambda trained: -jnp.trace(jax.nn.log_softmax(scores(trained))))(trained)
            updates, moments = optimiser.update(sharing.constrain(gradient, jnp.int32(0)), moments)
            return (eqx.apply_updates(trained, updates), moments), None

        (trained, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), length=600)
        return jnp.mean(jnp.argmax(scores(trained), axis=-1) == jnp.arange(AGENTS))

    right = jax.jit(jax.vmap(learn))(jax.random.split(jax.random.key(0), 3))
    assert max(right) == WITHOUT_ID[method] and np.all(right <= WITHOUT_ID[method])


def _with_masks(layer: RoleLinear) -> RoleLinear:
    """AdaPS' masks before there are clusters are all ones; these differ as those of two far clusters do."""
    if not isinstance(layer, NodeMaskedLinear):
        return layer
    width = layer.mask.shape[1]
    masks = jnp.stack([jnp.arange(width) >= 2, jnp.arange(width) < width - 2])
    return eqx.tree_at(lambda layer: layer.mask, layer, masks)
