"""Every learner in every place where environments live: it trains there, or one sentence says why it cannot."""

import itertools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from line import FAMILIES
from prism_marl.envs import registry
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment, Net, Run
from prism_marl.learners import IPPO, IQL, MAPPO, MATD3, VDN, QMix
from prism_marl.learners.log import NEVER
from prism_marl.sharing import METHODS
from prism_marl.training.build import make_trainer
from prism_marl.training.trainer import Trainer

VALUES = {"batch": 4, "buffer": 8, "epsilon_anneal": 100, "target_interval": 2}
LEARNERS = {
    "qmix": QMix(embed=2, hypernet=2, **VALUES),
    "vdn": VDN(**VALUES),
    "iql": IQL(**VALUES),
    "matd3": MATD3(
        batch=4, buffer=40, warmup=10, critic_width=4, n_critics=2, train_interval=5, updates=2, n_step=2, actor_lr=0.01
    ),
    "mappo": MAPPO(length=4, epochs=1, minibatches=2, chunk=2, critic_sharing="same"),
    "ippo": IPPO(length=4, epochs=2, recurrent=False, standardise_inputs=True),
}
SHARING = {"prism": {}, "nops": {}, "seps": {"pretraining": 10, "clusters": 2}}
RUN = Run(seeds=2, envs=2, eval_episodes=3, patience=0.0)
STEPS = 40  # of each seed, after what is collected at first


@pytest.fixture(autouse=True, scope="module")
def game():
    with pytest.MonkeyPatch.context() as patch:
        for name, family in FAMILIES.items():
            patch.setitem(registry._FAMILIES, name, family)
        yield


def trained(trainer: Trainer):
    """The agents before the first update, and the state in the end."""
    sharing = trainer.experiment.sharing
    first = trainer.warmup + sharing.pretraining_steps()

    def run():
        state = trainer.init()
        if first:
            state = trainer.advance(state, first, learn=False)
        state = trainer.prepare(state)
        before = jax.tree.map(jnp.copy, trainer.learner.agent(state.seeds.state))
        return before, trainer.advance(state, first + STEPS, learn=True)

    return jax.jit(run)() if trainer.collector.compiled else run()


PLACES, KINDS = ("jax", "python", "rows"), ("discrete", "continuous")
CELLS = list(itertools.product(LEARNERS, PLACES, KINDS, SHARING))


def chosen(learner: str, place: str, kind: str, sharing: str) -> bool:
    """Each cell costs seconds of compiling. Of the cells that train, one in three or six: every learner in every place,
    every method with every learner, and every method in every place. ``PRISM_MARL_MATRIX=all`` asks for the others."""
    if os.environ.get("PRISM_MARL_MATRIX") == "all" or kind not in LEARNERS[learner].kinds:
        return True
    number, kinds = list(LEARNERS).index(learner) + PLACES.index(place), LEARNERS[learner].kinds
    # A learner of both kinds of action learns one of them in each place.
    return number % 3 == list(SHARING).index(sharing) and kind == kinds[number % len(kinds)]


@pytest.mark.parametrize(("learner", "place", "kind", "sharing"), [cell for cell in CELLS if chosen(*cell)])
def test_learner_place_kind_and_sharing(learner: str, place: str, kind: str, sharing: str):
    settings = LEARNERS[learner]
    experiment = Experiment(f"line_{place}/{kind}", METHODS[sharing](**SHARING[sharing]), settings, Net(4), RUN)
    if kind not in settings.kinds:
        words = f"{settings.label} needs {settings.kinds[0]} actions, but '{experiment.task}' has {kind} ones; use "
        with pytest.raises(UserError, match=words) as error:
            experiment.validate()
        assert "\n" not in str(error.value)
        return
    experiment.validate()
    trainer = make_trainer(experiment)
    assert trainer.collector.compiled == (place == "jax")
    before, state = trained(trainer)
    agent = trainer.learner.agent(state.seeds.state)
    assert (state.seeds.steps >= STEPS).all() and int(state.clock.summed) >= 2
    assert all((value == NEVER).all() for value in state.seeds.log.faults.values())
    assert set(state.seeds.log.sums) == set(trainer.learner.metrics)
    for values in (*jax.tree.leaves(agent), *state.seeds.log.sums.values()):
        assert np.isfinite(values).all()
    moved = [np.any(np.asarray(old != new).reshape(2, -1), axis=1) for old, new in leaves(before, agent)]
    assert np.any(moved, axis=0).all()  # in both seeds


def leaves(before, after):
    """Arrays that learn, before and after."""
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return [(old, new) for old, new in pairs if jnp.issubdtype(old.dtype, jnp.inexact) and old.size]
