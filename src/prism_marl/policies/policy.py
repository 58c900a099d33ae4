"""A trained policy in numpy: observations in, actions out.

It computes what the learner's greedy policy computes, from plain matrices. Nothing of the trainer, the environment or
JAX is needed.
"""

from typing import Any

import numpy as np

from prism_marl.errors import UserError
from prism_marl.policies.contract import CORE, Contract
from prism_marl.policies.layers import layer_of, rows_of

UNAVAILABLE = np.float32(-1e7)  # below every value that a network produces
Explore = bool | np.random.Generator


class Policy:
    """A policy of one agent or of a whole team.

        memory = policy.reset(batch=32)
        action, memory = policy.act(obs, memory, avail=mask)

    Arrays of a team have the axes [batch, agents, ...], those of a single agent [batch, ...]; without ``batch`` the
    first axis is left out. ``memory`` is an array that begins as zeros. If you play another action than the chosen one,
    put its one-hot code at the end of the memory, where ``contract.last_action`` is true.
    """

    def __init__(self, contract: Contract, tensors: dict[str, np.ndarray], source: str = "policy"):
        self.contract, self.tensors = contract, dict(tensors)
        self.rng = np.random.default_rng(0)  # of exploring; replace it, or pass a generator to ``act``
        self._identity = np.asarray(contract.identity)
        left = dict(self.tensors)
        self.layers = {name: layer_of(name, left, contract, source) for name in contract.layers}
        self._gate = left.pop("gate.mask", None)
        self._explore = left.pop("explore", np.zeros((1, 1), np.float32))
        for name in left:
            raise UserError(f"{source}: its array '{name}' has no place in the network; export the run again", code=1)
        self._check_sizes(source)

    @property
    def parameters(self) -> int:
        """Numbers in all arrays of the network."""
        return sum(value.size for name, value in self.tensors.items() if name != "explore")

    @property
    def bytes(self) -> int:
        """Size of these arrays."""
        return sum(value.nbytes for name, value in self.tensors.items() if name != "explore")

    @property
    def multiply_adds(self) -> int:
        """Multiplications and additions of matrix products for one action of one agent."""
        return sum(layer.multiply_adds for layer in self.layers.values())

    def reset(self, batch: int | None = None) -> np.ndarray:
        """What is remembered before the first step: zeros."""
        c = self.contract
        lead = () if batch is None else (batch,)
        return np.zeros((*lead, *(() if c.agent is not None else (c.agents,)), c.memory), np.float32)

    def act(
        self,
        obs: Any,
        memory: np.ndarray,
        avail: Any = None,
        role: Any = None,
        explore: Explore = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Actions and the memory after them.

        Args:
            obs: what is observed, unscaled, as the environment gives it.
            memory: what ``reset`` or the call before returned.
            avail: which discrete actions are legal; all by default.
            role: the role (unit type) of each agent, for policies whose matrices depend on it.
            explore: act as training did, with ``rng`` or with a generator of your own.
        """
        values, hidden = self.outputs(obs, memory, role)
        legal = self._legal(avail, values)
        if self.contract.rule == "argmax":
            action = self._chosen(values, legal, explore)
        else:
            action = self._noisy(values, role, explore)
        if self.contract.last_action:
            last = np.eye(self.contract.actions, dtype=np.float32)[action]
            hidden = np.concatenate([hidden, last], axis=-1)
        return action, hidden

    def outputs(self, obs: Any, memory: np.ndarray, role: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """The outputs of the network (action values, or an action vector) and its hidden state afterwards."""
        c = self.contract
        memory = np.asarray(memory, np.float32)
        if memory.ndim == 0 or memory.shape[-1] != c.memory:
            raise UserError(f"memory: has the shape {list(memory.shape)}; pass what reset() or act() returned")
        x = self._observed(obs, memory)
        identity = self._identities(role, x)
        single = c.agent is not None
        if single:  # an agent axis of length one
            x, memory, identity = x[..., None, :], memory[..., None, :], identity[..., None] if c.by_role else identity
        x, hidden = self._network(self._inputs(x, memory), memory[..., : c.hidden], identity)
        return (x[..., 0, :], hidden[..., 0, :]) if single else (x, hidden)

    def _observed(self, obs: Any, memory: np.ndarray) -> np.ndarray:
        """The observation with its axes checked."""
        c = self.contract
        x = np.asarray(obs, np.float32)
        expected = (*memory.shape[:-1], c.observation)
        if c.shared_observation and c.agent is None and x.shape == (*memory.shape[:-2], c.observation):
            x = np.broadcast_to(x[..., None, :], expected)
        if x.shape != expected:
            raise UserError(
                f"obs: has the shape {list(x.shape)}, but this policy with this memory expects {list(expected)}"
            )
        return x

    def _identities(self, role: Any, x: np.ndarray) -> np.ndarray:
        """Which matrices each agent uses."""
        c = self.contract
        if not c.by_role:
            return self._identity
        if role is None:
            if c.roles != c.agents:
                raise UserError(f"role: this policy has matrices for {c.roles} unit types; say the type of each agent")
            own = np.arange(c.agents) if c.agent is None else np.asarray(c.agent)
            return np.broadcast_to(own, x.shape[:-1])
        found = np.asarray(role)
        if not np.issubdtype(found.dtype, np.integer) or found.shape != x.shape[:-1]:
            raise UserError(f"role: expected whole numbers of the shape {list(x.shape[:-1])}, got {list(found.shape)}")
        if found.size and (found.min() < 0 or found.max() >= c.roles):
            raise UserError(f"role: {found.max()} is outside 0 to {c.roles - 1}")
        return found

    def _inputs(self, x: np.ndarray, memory: np.ndarray) -> np.ndarray:
        """Observation, last action and id, as the network was trained with them."""
        c = self.contract
        parts = [x * np.float32(c.scale)]
        if c.last_action:
            parts.append(memory[..., c.hidden :])
        if c.ids:
            one_hot = np.eye(c.agents, c.ids, dtype=np.float32)
            own = one_hot if c.agent is None else one_hot[c.agent : c.agent + 1]
            parts.append(np.broadcast_to(own, (*x.shape[:-1], c.ids)))
        x = np.concatenate(parts, axis=-1)
        if c.standardise:
            x = x - x.mean(axis=-1, keepdims=True)
            deviation = np.sqrt(np.mean(x * x, axis=-1, keepdims=True))
            x = x / np.where(deviation == 0, np.float32(1), deviation)
        return x

    def _network(self, x: np.ndarray, hidden: np.ndarray, identity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The steps of the network, one after the other."""
        for step in self.contract.network:
            if step == "relu":
                x = np.maximum(x, 0)
            elif step == "tanh":
                x = np.tanh(x)
            elif step == CORE:
                x = hidden = self._gru(x, hidden, identity)
            else:
                x = self.layers[step](x, identity)
        return x, hidden

    def _gru(self, x: np.ndarray, hidden: np.ndarray, identity: np.ndarray) -> np.ndarray:
        """PyTorch's cell with two biases; gates are stacked as reset, update, new."""
        of_input = np.split(self.layers["input"](x, identity), 3, axis=-1)
        of_state = np.split(self.layers["hidden"](hidden, identity), 3, axis=-1)
        reset, update = (_sigmoid(of_input[gate] + of_state[gate]) for gate in (0, 1))
        new = np.tanh(of_input[2] + reset * of_state[2])
        out = (1 - update) * new + update * hidden
        return out if self._gate is None else out * rows_of(self._gate, identity)

    def _legal(self, avail: Any, values: np.ndarray) -> np.ndarray | None:
        if avail is None:
            return None
        found = np.asarray(avail).astype(bool)
        if self.contract.kind == "discrete" and found.shape != values.shape:
            raise UserError(f"avail: has the shape {list(found.shape)}, but the actions have {list(values.shape)}")
        return found

    def _chosen(self, values: np.ndarray, legal: np.ndarray | None, explore: Explore) -> np.ndarray:
        masked = values if legal is None else np.where(legal, values, UNAVAILABLE)
        best = masked.argmax(axis=-1)
        rng = self._generator(explore)
        if rng is None:
            return best
        noise = rng.gumbel(size=values.shape)  # the largest of value + noise is a sample of softmax
        amount = 1.0 if self.contract.exploration == "softmax" else float(self._explore[0, 0])
        allowed = np.ones(values.shape, bool) if legal is None else legal
        base = masked if self.contract.exploration == "softmax" else np.zeros_like(values)
        sampled = np.where(allowed, base + noise, -np.inf).argmax(axis=-1)
        return np.where(rng.random(best.shape) < amount, sampled, best)

    def _noisy(self, values: np.ndarray, role: Any, explore: Explore) -> np.ndarray:
        rng = self._generator(explore)
        if rng is None:
            return np.clip(values, -1, 1)
        amount, c = self._explore, self.contract
        if len(amount) > 1:
            amount = amount[self._identities(role, values)]
            amount = amount[0] if c.agent is not None and not c.by_role else amount
        elif c.agent is not None:
            amount = amount[0]
        return np.clip(values + amount * rng.standard_normal(values.shape, np.float32), -1, 1)

    def _generator(self, explore: Explore) -> np.random.Generator | None:
        if isinstance(explore, np.random.Generator):
            return explore
        return self.rng if explore else None

    def _check_sizes(self, source: str) -> None:
        """Every layer reads what the one before returns, the first the inputs; the last returns the actions."""
        c = self.contract
        for name, table in (("gate.mask", self._gate), ("explore", self._explore)):
            if table is not None and (table.ndim != 2 or not len(table) or not np.issubdtype(table.dtype, np.floating)):
                raise UserError(
                    f"{source}: its array '{name}' does not fit its description; export the run again", code=1
                )
        size = c.inputs
        for step in c.network:
            if step == CORE:
                self.layers["hidden"].check(c.hidden, 3 * c.hidden, source)
                self.layers["input"].check(size, 3 * c.hidden, source)
                size = c.hidden
            elif step in self.layers:
                layer = self.layers[step]
                layer.check(size, layer.outputs, source)
                size = layer.outputs
        rows = c.roles if c.by_role else max(c.identity) + 1
        tables = [value for value in (self._gate, self._explore) if value is not None and len(value) > 1]
        fits = self._gate is None or self._gate.shape[1:] == (c.hidden,)
        if size != c.actions or not fits or any(len(table) < rows for table in tables):
            raise UserError(f"{source}: its arrays do not fit its description; export the run again", code=1)
        if self._explore.shape[1] not in (1, c.actions):
            raise UserError(f"{source}: its array 'explore' does not fit its description; export the run again", code=1)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1))  # exp would overflow for large |x|
