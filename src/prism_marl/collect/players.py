"""How rows on the host get their actions: from numpy, or from a compiled program at every step."""

import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.learners.base import Hosted, Learner, Mode, NumpyPolicy
from prism_marl.learners.numpy_values import HostMemory, NumpyValues
from prism_marl.learners.seeds import map_seeds
from prism_marl.types import Observation


class Player(Protocol):
    """Chooses actions for the rows of all seeds, step by step."""

    in_turns: bool  # some seeds can be asked while the rows of the others move
    memory: Any

    def act(self, number: int, seeds: slice, obs: Observation) -> tuple[np.ndarray, Any]:
        """Actions [n, b, a, ...] and extras of some seeds at step ``number``, for what their rows [n, b, ...] see."""
        ...

    def forget(self, over: np.ndarray) -> None:
        """Begin anew in the memory of rows [n, b] whose episode is over."""
        ...


class NumpyPlayer:
    """Plays with a policy on the host; ``noise`` is [n, t, b, ...], or None for greedy play."""

    in_turns = True

    def __init__(self, act: NumpyPolicy, policy: Any, noise: np.ndarray | None, mode: Mode):
        self._act, self._policy, self._noise = act, policy, noise
        self._mode: Mode = mode
        self.memory: Any = ()

    def act(self, number: int, seeds: slice, obs: Observation) -> tuple[np.ndarray, Any]:
        noise = None if self._noise is None else self._noise[seeds, number]
        local, state = np.asarray(obs.local), np.asarray(obs.state)
        found = self._act(self._policy, seeds, local, state, noise, self._mode)
        return found if isinstance(found, tuple) else (found, ())

    def forget(self, over: np.ndarray) -> None:
        """Such a policy has no memory."""


class DevicePlayer:
    """Plays with a compiled program that is called for all seeds at every step."""

    in_turns = False

    def __init__(self, learner: Learner, policy: Any, memory: Any, keys: Any, steps: Any, mode: Mode):
        self._programs, self._fixed, self.memory = _programs(learner, mode), (policy, keys, steps), memory

    def act(self, number: int, seeds: slice, obs: Observation) -> tuple[np.ndarray, Any]:
        policy, keys, steps = self._fixed
        # The program may read numpy's own memory, which the next step overwrites: wait until it is done.
        self.memory, action, extras = jax.block_until_ready(
            self._programs[0](policy, self.memory, obs, keys, np.int32(number), steps)
        )
        return np.asarray(action), extras

    def forget(self, over: np.ndarray) -> None:
        self.memory = self._programs[1](self._fixed[0], self.memory, over)


class HostPlayer:
    """Plays with a policy that remembers, on the host. Random numbers of all steps are computed beforehand."""

    in_turns = False

    def __init__(self, learner: Hosted, acting: NumpyValues, policy: Any, rows: int, keys: Any, steps: Any, mode: Mode):
        self._acting = acting
        self._mode: Mode = mode
        self._policy, draws = jax.device_get(_prepared(learner, acting, rows, mode)(policy, keys, steps))
        self._draws, self._rates = draws if draws is not None else (None, None)
        self.memory = acting.memory(len(keys), rows)

    def act(self, number: int, seeds: slice, obs: Observation) -> tuple[np.ndarray, Any]:
        draw = None if self._draws is None else self._draws[:, number]
        self.memory, action = self._acting.act(self._policy, self.memory, obs, draw, self._rates, self._mode)
        return action, ()

    def forget(self, over: np.ndarray) -> None:
        hidden, last = self.memory
        self.memory = HostMemory(hidden * ~over[:, None, :, None], np.where(over[..., None], -1, last))


@functools.lru_cache(maxsize=16)
def _prepared(learner: Any, acting: NumpyValues, rows: int, mode: Mode) -> Any:
    """The compiled program that gives matrices, and uniform numbers [n, t, b, a] with rates [n, 1, 1], or None."""

    def draws(key, step):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(learner.spec.horizon))
        rate = learner.epsilon(step) if mode == "explore" else jnp.ones(())
        return acting.draws(keys, rows), rate.reshape(1, 1)

    def prepare(policy, keys, steps):
        return map_seeds(acting.plain)(policy), None if mode == "greedy" else map_seeds(draws)(keys, steps)

    return jax.jit(prepare)


@functools.lru_cache(maxsize=16)
def _programs(learner: Learner, mode: Mode) -> tuple[Any, Any]:
    """(act, forget) of one learner: compiled when first used, for each number of rows."""

    def act(policy, memory, obs, keys, number, steps):
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
        return map_seeds(functools.partial(learner.act, mode=mode))(policy, memory, obs, keys, steps)

    def forget(policy, memory, over):
        fresh = map_seeds(lambda policy: learner.memory(policy, over.shape[1]))(policy)

        def chosen(new, old):
            return jnp.where(over.reshape(*over.shape, *[1] * (new.ndim - 2)), new, old)

        return jax.tree.map(chosen, fresh, memory)

    return jax.jit(act), jax.jit(forget)


def fresh_memory(learner: Learner, policy: Any, rows: int) -> Any:
    """What all seeds remember before the first step."""
    return map_seeds(lambda policy: learner.memory(policy, rows))(policy)
