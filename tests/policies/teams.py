"""Learners of a few numbers whose agents differ, their policies, and observations for them."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.envs import Meaning
from prism_marl.learners import QMix
from prism_marl.policies.extract import Origin, extract
from prism_marl.sharing import METHODS
from prism_marl.types import EnvSpec, Observation

LBF = "lbf/5x5-3p-1f"
ROWS = 400  # episodes' starts, each with three agents: 1,200 observations a step
STEPS = 3
CLUSTERED = {"clusters": 2, "pretraining": 10}
SETTINGS = {"seps": CLUSTERED, "adaps": CLUSTERED}
FORAGER = QMix(scale_inputs=True, last_action=True)
BATTLE = EnvSpec("battle", agents=3, observation=7, state=5, actions=6, roles=2, horizon=4, magnitude=2.0)
ROBOT = dataclasses.replace(BATTLE, name="robot", kind="continuous", roles=3, shared_observation=True, state=7)


def changed(state):
    """Every trained number a little elsewhere, so that agents differ and some masks are off."""
    leaves, structure = jax.tree.flatten(state)
    rng = np.random.default_rng(0)
    moved = [
        leaf + rng.normal(size=leaf.shape).astype(np.float32) * np.abs(leaf).mean() if _trained(leaf) else leaf
        for leaf in leaves
    ]
    return structure.unflatten(moved)


def _trained(leaf) -> bool:
    return eqx.is_inexact_array(leaf) and leaf.size > 0


@functools.cache
def make(method: str, settings, spec: EnvSpec, **changes):
    """A learner, and a state in which agents differ."""
    sharing = METHODS[method](**SETTINGS.get(method, {}), **changes)
    learner = settings.learner(sharing, spec, width=8)
    state = jax.jit(learner.init)(jax.random.key(0))
    agent = changed(learner.agent(state))
    if getattr(agent, "clusters", None) is not None:
        agent = dataclasses.replace(agent, clusters=jnp.array([1, 0, 1]))
    return learner, learner.with_agent(state, agent)


def policy_of(learner, state, **how):
    return extract(learner, state, Origin(learner.sharing.method, "learner"), Meaning(), **how)


def made_up(spec: EnvSpec, step: int) -> Observation:
    """Observations of sizes that no game here has, with illegal actions and roles."""
    rng = np.random.default_rng(step)
    local = rng.uniform(-2, 2, (ROWS, spec.agents, spec.observation)).astype(np.float32)
    if spec.shared_observation:
        local = np.broadcast_to(local[:, :1], local.shape)
    sizes = (ROWS, spec.agents, spec.actions)
    avail = (rng.random(sizes) < 0.6) | (np.arange(spec.actions) == 2) | (spec.kind == "continuous")
    role = rng.integers(0, spec.roles, sizes[:2]) if spec.roles != spec.agents else np.tile(np.arange(3), (ROWS, 1))
    return Observation(local, local[:, 0, : spec.state], avail, role)
