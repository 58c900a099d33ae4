"""Feed-forward actors as plain matrices: on the host in numpy, and on the device for environments that live there."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prism_marl.learners.base import Mode
from prism_marl.learners.inputs import InputBuilder
from prism_marl.networks.heads import HALF_LOG_TAU
from prism_marl.networks.mlp import MlpActor
from prism_marl.sharing.base import RoleLinear
from prism_marl.sharing.fups import SharedLinear
from prism_marl.types import EnvSpec


class DensePolicy(NamedTuple):
    """The layers of an actor as matrices, one for each agent or one for all; a first axis of seeds where asked for."""

    weights: tuple[Float[Array, "*n a i o"], ...]
    biases: tuple[Float[Array, "*n a 1 o"], ...]


def dense_policy(actor: MlpActor, agents: int) -> DensePolicy:
    """The matrices that the agents of one seed use; compiled, and copied to the host as a whole."""
    identity = jnp.arange(agents) if actor.clusters is None else actor.clusters
    weights, biases = [], []
    for layer in (actor.fc1, actor.fc2, actor.fc3):
        weight, bias = matrices(layer, identity)
        weights.append(weight)
        biases.append(bias)
    return DensePolicy(tuple(weights), tuple(biases))


def matrices(layer: RoleLinear, identity: Int[Array, " a"]) -> tuple[Float[Array, "k i o"], Float[Array, "k 1 o"]]:
    """A layer's matrix and bias of each agent; one of each where it is the same for all."""
    if isinstance(layer, SharedLinear):
        weight, bias = layer.weight[None], layer.bias[None]
    else:
        weight, bias = layer.dense()[identity], layer.dense_bias()[identity]
    return jnp.swapaxes(weight, -1, -2), bias[:, None]


def times(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """x [n, a, b, i] times matrices [n, a, i, o], plus biases [n, a, 1, o]."""
    number, agents, rows, _ = x.shape
    if weight.shape[1] == 1:  # one matrix for all agents: one product instead of one for each
        x = x.reshape(number, 1, agents * rows, x.shape[-1])
    return (np.matmul(x, weight) + bias).reshape(number, agents, rows, -1)


def act(policy: DensePolicy, x: Float[Array, "b a i"]) -> Float[Array, "b a u"]:
    """Actions without noise, on the device."""
    return jnp.tanh(outputs(policy, x))


def outputs(policy: DensePolicy, x: Float[Array, "b a i"]) -> Float[Array, "b a u"]:
    """What the last layer says, on the device."""
    x, last = jnp.swapaxes(x, 0, 1), len(policy.weights) - 1
    for depth, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        x = jnp.matmul(x, weight) + bias
        x = x if depth == last else jax.nn.relu(x)
    return jnp.swapaxes(x, 0, 1)


@dataclass(frozen=True)
class NumpyActors:
    """The actors of all seeds on the host."""

    spec: EnvSpec
    inputs: InputBuilder
    explore: float  # deviation of the noise on actions

    def noise(self, rng: np.random.Generator, steps: int, rows: int, mode: Mode) -> np.ndarray:
        """Standard normal numbers, or where actions are random uniform ones in [-1, 1]: [t, b, a, u]."""
        shape = (steps, rows, self.spec.agents, self.spec.actions)
        if mode == "random":
            return 2 * rng.random(shape, np.float32) - 1
        return rng.standard_normal(shape, np.float32)

    def __call__(
        self,
        policy: DensePolicy | None,
        seeds: slice,
        local: np.ndarray,
        state: np.ndarray,
        noise: np.ndarray | None,
        mode: Mode,
    ) -> np.ndarray:
        """Actions [n, b, a, u] of some seeds for observations local [n, b, a, o] and state [n, b, s]. Random ones need
        no policy."""
        if mode == "random":
            assert noise is not None
            return noise
        action = np.tanh(self.outputs(policy, seeds, local, state))
        if mode == "greedy" or noise is None:
            return action
        return np.clip(action + np.float32(self.explore) * noise, -1, 1)

    def outputs(self, policy: Any, seeds: slice, local: np.ndarray, state: np.ndarray) -> np.ndarray:
        """What the last layer says, [n, b, a, u]."""
        x = self._inputs(local, state)
        last = len(policy.weights) - 1
        for depth, (weights, biases) in enumerate(zip(policy.weights, policy.biases, strict=True)):
            x = times(x, weights[seeds], biases[seeds])
            x = x if depth == last else np.maximum(x, 0)
        return np.swapaxes(x, 1, 2)

    def _inputs(self, local: np.ndarray, state: np.ndarray) -> np.ndarray:
        """[n, a, b, i]: agents before rows, so that each has its product."""
        spec, inputs = self.spec, self.inputs.inputs
        seen = state[:, None] if spec.shared_observation else np.swapaxes(local, 1, 2)
        seeds, rows = state.shape[:2]
        x = np.empty((seeds, spec.agents, rows, inputs.size(spec)), np.float32)
        x[..., : spec.observation] = seen
        if inputs.agent_id:
            x[..., spec.observation :] = np.eye(spec.agents, inputs.ids, dtype=np.float32)[:, None]
        if self.inputs.standardise:
            x -= x.mean(axis=-1, keepdims=True)
            deviation = np.sqrt(np.mean(x * x, axis=-1, keepdims=True))
            x /= np.where(deviation == 0, 1, deviation)
        return x


class GaussianPolicy(NamedTuple):
    """Matrices that give means, and the deviations around them."""

    means: DensePolicy
    deviation: Float[Array, "*n a u"]  # a: each agent, or one for all


class NumpyGaussian(NumpyActors):
    """Gaussian policies of all seeds on the host; with an action goes what learning must know of it."""

    def __call__(self, policy: Any, seeds: slice, local: np.ndarray, state: np.ndarray, noise: Any, mode: Mode) -> Any:
        """As ``NumpyActors``, and the extras of networks/heads.py."""
        if mode == "random":
            return noise, {"draw": noise, "log_prob": np.zeros(noise.shape[:-1], np.float32)}
        mean = self.outputs(policy.means, seeds, local, state)
        if mode == "greedy" or noise is None:
            return np.clip(mean, -1, 1), {"draw": mean, "log_prob": np.zeros(mean.shape[:-1], np.float32)}
        size = policy.deviation[seeds][:, None]
        draw = mean + size * noise
        density = np.sum(-0.5 * noise**2 - np.log(size) - np.float32(HALF_LOG_TAU), axis=-1, dtype=np.float32)
        return np.clip(draw, -1, 1), {"draw": draw, "log_prob": density}
