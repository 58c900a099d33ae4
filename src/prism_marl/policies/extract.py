"""From a trained network to a policy: every sharing method as plain matrices, or as shared factors where asked for.

This is the only file of this package that reads networks, and the only one that needs JAX.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from prism_marl import __version__
from prism_marl.envs import Meaning
from prism_marl.errors import UserError
from prism_marl.learners.base import Deployable, Deployment, Learner
from prism_marl.policies.contract import CORE, Contract
from prism_marl.policies.policy import Policy
from prism_marl.sharing.base import RoleLinear, role_layers
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class Origin:
    """Where a policy comes from."""

    method: str
    learner: str
    run: str = ""  # digest of the run's settings
    seed: int = 0
    steps: int = 0
    checkpoint: int = 0
    finished: bool = True


def extract(
    learner: Learner,
    state: Any,
    origin: Origin,
    meaning: Meaning,
    *,
    agent: int | None = None,
    factored: bool | Literal["every"] = False,
) -> Policy:
    """The policy of one seed, of the whole team or of one agent. ``factored`` keeps shared factors as they are in the
    layers where that takes less room; ``every`` in all layers, with the directions that no identity uses."""
    deployment = deployment_of(learner, state)
    spec, network = learner.spec, deployment.agent
    if agent is not None and not 0 <= agent < spec.agents:
        raise UserError(f"--agent: {agent} is outside 0 to {spec.agents - 1}; agents are counted from 0")
    identity = _identity(network, spec.agents)
    used = identity if agent is None else identity[agent : agent + 1]
    rows = slice(None) if network.by_role or agent is None else slice(int(used[0]), int(used[0]) + 1)
    tensors: dict[str, np.ndarray] = {}
    for name, layer in role_layers(network).items():
        short = name.rpartition(".")[2]
        tensors |= {f"{short}.{part}": value for part, value in _arrays(layer, rows, factored).items()}
    gate = getattr(getattr(network, CORE, None), "gate", None)
    if gate is not None:
        tensors["gate.mask"] = _collapsed(np.asarray(gate.mask, np.float32)[rows])
    tensors["explore"] = _amount(deployment, rows)
    hidden = tensors["hidden.bias"].shape[-1] // 3 if CORE in network.chain else 0
    local = (0,) if agent is not None else tuple(int(number) for number in identity)
    contract = _contract(spec, deployment, origin, meaning, agent=agent, hidden=hidden, identity=local)
    return Policy(contract, {name: np.ascontiguousarray(value) for name, value in tensors.items()})


def deployment_of(learner: Learner, state: Any) -> Deployment:
    """What the learner says about its policy. Raises if it says nothing, or of a network that cannot be exported."""
    who = type(learner).__name__
    if not isinstance(learner, Deployable):
        raise UserError(f"{who} does not say how its policy acts outside of training; define deployment(state)")
    found = learner.deployment(state)
    if not hasattr(found.agent, "chain") or not hasattr(found.agent, "by_role"):
        raise UserError(f"{who}: the network {type(found.agent).__name__} does not name its layers; define its chain")
    return found


def _contract(
    spec: EnvSpec,
    deployment: Deployment,
    origin: Origin,
    meaning: Meaning,
    *,
    agent: int | None,
    hidden: int,
    identity: tuple[int, ...],
) -> Contract:
    network: Any = deployment.agent
    return Contract(
        task=spec.name,
        method=origin.method,
        learner=origin.learner,
        agents=spec.agents,
        agent=agent,
        observation=spec.observation,
        actions=spec.actions,
        kind=spec.kind,
        rule=deployment.rule,
        exploration=deployment.exploration,
        network=network.chain,
        hidden=hidden,
        last_action=deployment.inputs.last_action,
        ids=deployment.inputs.agent_id * spec.ids,
        scale=float(deployment.scale),
        standardise=deployment.standardise,
        by_role=network.by_role,
        roles=spec.roles,
        identity=identity,
        shared_observation=spec.shared_observation,
        observation_names=meaning.observation_names,
        observation_meaning=meaning.observation_meaning,
        action_names=meaning.action_names,
        version=__version__,
        environment=spec.version,
        run=origin.run,
        seed=origin.seed,
        steps=origin.steps,
        checkpoint=origin.checkpoint,
        finished=origin.finished,
    )


def _identity(network: Any, agents: int) -> np.ndarray:
    clusters = getattr(network, "clusters", None)
    return np.arange(agents) if clusters is None else np.asarray(clusters)


def _amount(deployment: Deployment, rows: slice) -> np.ndarray:
    amount = np.asarray(deployment.amount, np.float32)
    return _collapsed(np.atleast_2d(amount) if amount.ndim < 2 or len(amount) == 1 else amount[rows])


def _arrays(layer: RoleLinear, rows: slice, factored: bool | Literal["every"]) -> dict[str, np.ndarray]:
    """A layer as a file holds it: see ``policies.layers``."""
    bias = _collapsed(np.asarray(layer.dense_bias(), np.float32)[rows])
    parts = _factors(layer, rows, unused=factored == "every") if factored else None
    if parts is not None:
        fan_out, fan_in = parts["U"].shape[1], parts["V"].shape[0]
        if factored == "every" or sum(value.size for value in parts.values()) < len(parts["s"]) * fan_out * fan_in:
            return {**parts, "bias": bias}
    weight = np.asarray(layer.dense(), np.float32)[rows]
    return {"weight": np.swapaxes(_collapsed(weight), 1, 2), "bias": bias}


def _factors(layer: RoleLinear, rows: slice, *, unused: bool) -> dict[str, np.ndarray] | None:
    """V, s and U, with or without the directions that no identity uses; None for methods without them."""
    found = layer.factors()
    if found is None:
        return None
    U, s, V = (np.asarray(part, np.float32) for part in found)
    s = _collapsed(s[rows])
    on = (s != 0).any(axis=0) | unused
    return {"V": V[:, on], "s": s[:, on], "U": U[:, on].T}


def _collapsed(table: np.ndarray) -> np.ndarray:
    """One row where all are equal."""
    return table[:1] if len(table) > 1 and (table == table[:1]).all() else table


def seed_state(states: Any, index: int) -> Any:
    """The learner's state of one seed."""
    return jax.tree.map(lambda leaf: leaf[index], states)
