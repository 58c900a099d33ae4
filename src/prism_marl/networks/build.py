"""Builds the networks of a task: agents of learners of action values, policies, and the values that guide them."""

from typing import Any

from jaxtyping import Array, Key

from prism_marl.networks.inputs import Inputs
from prism_marl.networks.mlp import MlpActor, mlp_actor
from prism_marl.networks.recurrent import RecurrentAgent, recurrent_agent
from prism_marl.sharing.base import Sharing
from prism_marl.types import EnvSpec


def build_agent(
    spec: EnvSpec, sharing: Sharing, *, width: int, last_action: bool, key: Key[Array, ""]
) -> RecurrentAgent | MlpActor:
    """Recurrent action values if actions are discrete, a feed-forward actor if they are continuous."""
    build = recurrent_agent if spec.kind == "discrete" else mlp_actor
    return build(
        sharing,
        inputs=Inputs.of(sharing, spec, last_action=last_action).size(spec),
        actions=spec.actions,
        width=width,
        agents=spec.agents,
        roles=spec.roles,
        key=key,
    )


def build_policy(
    spec: EnvSpec, sharing: Sharing, *, width: int, recurrent: bool, behind: int, key: Key[Array, ""]
) -> RecurrentAgent | MlpActor:
    """A stochastic policy: logits of discrete actions, or means of continuous ones (networks/heads.py)."""
    inputs = Inputs.of(sharing, spec, last_action=False).size(spec)
    sizes: Any = {"inputs": inputs, "actions": spec.actions, "width": width, "agents": spec.agents, "roles": spec.roles}
    if recurrent:
        return recurrent_agent(sharing, **sizes, head="actions", behind=behind, key=key)
    return mlp_actor(sharing, **sizes, squash=False, key=key)


def build_values(
    spec: EnvSpec,
    sharing: Sharing,
    *,
    inputs: int,
    values: int,
    width: int,
    recurrent: bool,
    behind: int,
    key: Key[Array, ""],
) -> RecurrentAgent | MlpActor:
    """A critic that gives one value of the state to the team, or one to each agent."""
    sizes: Any = {"inputs": inputs, "actions": 1, "width": width, "agents": values, "roles": spec.roles}
    if recurrent:
        return recurrent_agent(sharing, **sizes, head="values", behind=behind, key=key)
    return mlp_actor(sharing, **sizes, head="values", squash=False, key=key)
