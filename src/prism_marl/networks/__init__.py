"""Networks made of sharing layers; the same code serves every method."""

from prism_marl.networks.build import agent_network, agent_shapes
from prism_marl.networks.inputs import Inputs
from prism_marl.networks.mlp import MlpActor, mlp_actor
from prism_marl.networks.recurrent import RecurrentAgent, recurrent_agent

__all__ = [
    "Inputs",
    "MlpActor",
    "RecurrentAgent",
    "agent_network",
    "agent_shapes",
    "mlp_actor",
    "recurrent_agent",
]
