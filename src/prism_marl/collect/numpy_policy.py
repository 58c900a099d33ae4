"""Actors in numpy: what the host needs to play without asking the accelerator at every step."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from prism_marl.learners.matd3 import MATD3Learner
from prism_marl.networks.mlp import MlpActor
from prism_marl.sharing.fups import SharedLinear


class DensePolicy(NamedTuple):
    """The layers of an actor as matrices, one for each agent or one for all; a first axis of seeds where asked for."""

    weights: tuple[Float[Array, "*n a i o"], ...]
    biases: tuple[Float[Array, "*n a 1 o"], ...]


def plain(actor: MlpActor, agents: int) -> DensePolicy:
    """The matrices that the agents of one seed use; compiled, and copied to the host as a whole."""
    identity = jnp.arange(agents) if actor.clusters is None else actor.clusters
    weights, biases = [], []
    for layer in (actor.fc1, actor.fc2, actor.fc3):
        if isinstance(layer, SharedLinear):
            weight, bias = layer.weight[None], layer.bias[None]
        else:
            weight, bias = layer.dense()[identity], layer.dense_bias()[identity]
        weights.append(jnp.swapaxes(weight, -1, -2))
        biases.append(bias[:, None])
    return DensePolicy(tuple(weights), tuple(biases))


@dataclass(frozen=True)
class NumpyActors:
    """The actors of all seeds on the host."""

    learner: MATD3Learner

    def __call__(self, layers: DensePolicy, part: slice, local: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Actions [n, b, a, u] without noise, for observations local [n, b, a, o] and state [n, b, s] of some seeds."""
        x = self._inputs(local, state)
        seeds, agents, rows, _ = x.shape
        last = len(layers.weights) - 1
        for depth, (weights, biases) in enumerate(zip(layers.weights, layers.biases, strict=True)):
            weight, bias = weights[part], biases[part]
            if weight.shape[1] == 1:  # one matrix for all agents: one product instead of one for each
                x = x.reshape(seeds, 1, agents * rows, x.shape[-1])
            x = np.matmul(x, weight) + bias
            x = (np.tanh(x) if depth == last else np.maximum(x, 0)).reshape(seeds, agents, rows, -1)
        return np.swapaxes(x, 1, 2)

    def _inputs(self, local: np.ndarray, state: np.ndarray) -> np.ndarray:
        """[n, a, b, i]: agents before rows, so that each has its product."""
        spec, views = self.learner.spec, self.learner.views
        seen = state[:, None] if spec.shared_observation else np.swapaxes(local, 1, 2)
        seeds, rows = state.shape[:2]
        x = np.empty((seeds, spec.agents, rows, views.inputs.size(spec)), np.float32)
        x[..., : spec.observation] = seen
        if views.inputs.agent_id:
            x[..., spec.observation :] = np.eye(spec.agents, dtype=np.float32)[:, None]
        if views.standardise:
            x -= x.mean(axis=-1, keepdims=True)
            deviation = np.sqrt(np.mean(x * x, axis=-1, keepdims=True))
            x /= np.where(deviation == 0, 1, deviation)
        return x
