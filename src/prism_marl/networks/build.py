"""Builds the agent network of a task; the kind of action decides the architecture."""

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
        inputs=Inputs.of(sharing, last_action=last_action).size(spec),
        actions=spec.actions,
        width=width,
        agents=spec.agents,
        roles=spec.roles,
        key=key,
    )
