"""Recurrent action values on the host, in numpy. For the few rows of games in Python a compiled call at every step
takes several times as long as what it computes.

The numbers are those of ``ValueLearner.act`` up to rounding, and the random ones are the same.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from prism_marl.learners.actions import UNAVAILABLE, replaced
from prism_marl.learners.base import Mode
from prism_marl.learners.numpy_actors import matrices, times
from prism_marl.networks.inputs import Inputs
from prism_marl.networks.recurrent import RecurrentAgent
from prism_marl.sharing.base import role_layers
from prism_marl.types import EnvSpec, Observation

MOST = 128  # agents in the rows of one seed, up to which numpy is faster than a compiled call


class PlainAgent(NamedTuple):
    """A recurrent agent as matrices; a first axis of seeds where asked for."""

    layers: dict[str, tuple[Any, Any]]  # by the last part of their names
    gate: Float[Array, "*n a 1 h"] | None


class HostMemory(NamedTuple):
    """What the agents remember from step to step."""

    hidden: np.ndarray  # [n, a, b, h]
    last_action: np.ndarray  # [n, b, a], -1 before the first


@dataclass(frozen=True)
class NumpyValues:
    """How the agents of all seeds act on the host."""

    spec: EnvSpec
    inputs: Inputs
    scale: float  # observations are multiplied by this
    chain: tuple[str, ...]  # of the network
    width: int

    def plain(self, agent: RecurrentAgent) -> PlainAgent:
        """The matrices that the agents of one seed use; compiled, and copied to the host as a whole."""
        identity = jnp.arange(self.spec.agents) if agent.clusters is None else agent.clusters
        layers = {name.rpartition(".")[2]: matrices(layer, identity) for name, layer in role_layers(agent).items()}
        gate = None if agent.gru.gate is None else agent.gru.gate.mask[identity][:, None].astype(jnp.float32)
        return PlainAgent(layers, gate)

    def draws(self, keys: Key[Array, " t"], rows: int) -> Float[Array, "t b a"]:
        """The uniform numbers that decide about exploring at the steps of these keys; compiled."""
        return jax.vmap(lambda key: jax.random.uniform(key, (rows, self.spec.agents)))(keys)

    def memory(self, seeds: int, rows: int) -> HostMemory:
        """What is remembered before the first step."""
        agents = self.spec.agents
        hidden = np.zeros((seeds, agents, rows, self.width), np.float32)
        return HostMemory(hidden, np.full((seeds, rows, agents), -1, np.int32))

    def act(
        self, policy: PlainAgent, memory: HostMemory, obs: Observation, draw: Any, rate: Any, mode: Mode
    ) -> tuple[HostMemory, np.ndarray]:
        """Actions [n, b, a]; ``draw`` [n, b, a] and the rates of exploring [n, 1, 1] are only read if not greedy."""
        avail: Any = obs.avail
        hidden, greedy = memory.hidden, np.zeros(memory.last_action.shape, np.int32)
        if mode != "random":
            hidden, values = self._network(policy, self._inputs(obs, memory.last_action), hidden)
            values = np.swapaxes(values, 1, 2)
            greedy = np.where(avail, values, np.float32(UNAVAILABLE)).argmax(axis=-1)
        explores = mode != "greedy" and (draw < rate).any()
        action = (replaced(np, draw, greedy, avail, rate) if explores else greedy).astype(np.int32)
        return HostMemory(hidden, action), action

    def _inputs(self, obs: Observation, last_action: np.ndarray) -> np.ndarray:
        """[n, a, b, i], as ``Inputs.join`` puts them together."""
        local, spec = np.asarray(obs.local), self.spec
        seeds, rows, agents, size = local.shape
        x = np.zeros((seeds, agents, rows, self.inputs.size(spec)), np.float32)
        np.multiply(np.swapaxes(local, 1, 2), np.float32(self.scale), out=x[..., :size])
        if self.inputs.last_action:
            codes = np.arange(spec.actions) == np.swapaxes(last_action, 1, 2)[..., None]
            x[..., size : size + spec.actions] = codes
        if self.inputs.agent_id:
            x[..., -self.inputs.ids :] = self._codes
        return x

    @functools.cached_property
    def _codes(self) -> np.ndarray:
        """The agents' ids as one-hot codes [a, 1, i]."""
        return np.eye(self.spec.agents, self.inputs.ids, dtype=np.float32)[:, None]

    def _network(self, policy: PlainAgent, x: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        for step in self.chain:
            if step == "relu":
                x = np.maximum(x, 0)
            elif step == "gru":
                x = hidden = self._cell(policy, x, hidden)
            else:
                x = times(x, *policy.layers[step])
        return hidden, x

    def _cell(self, policy: PlainAgent, x: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """One step of the GRU, whose gates are stacked as reset, update, new."""
        of_input, of_state = (times(value, *policy.layers[name]) for value, name in ((x, "input"), (hidden, "hidden")))
        width = self.width
        half = of_input[..., : 2 * width] + of_state[..., : 2 * width]
        half *= np.float32(0.5)
        gates = np.tanh(half, out=half)  # half of one plus this is the sigmoid, which exp would overflow in
        gates += np.float32(1)
        gates *= np.float32(0.5)
        reset, update = gates[..., :width], gates[..., width:]
        new = np.tanh(of_input[..., 2 * width :] + reset * of_state[..., 2 * width :])
        out = (1 - update) * new + update * hidden
        return out if policy.gate is None else out * policy.gate


@functools.lru_cache(maxsize=16)
def numpy_values(learner: Any, scale: float, rows: int) -> NumpyValues | None:
    """How a ``ValueLearner`` acts in numpy; None for many rows, and for matrices that differ from sample to sample."""
    if rows * learner.spec.agents > MOST or learner.sharing.by_role():
        return None
    network = eqx.filter_eval_shape(learner.build_agent, jax.random.key(0))
    return NumpyValues(learner.spec, learner.inputs, scale, network.chain, learner.width)
