"""Networks made of sharing layers; the same code serves every method."""

from prism_marl.networks.build import build_agent
from prism_marl.networks.inputs import Inputs
from prism_marl.networks.mlp import MlpActor, mlp_actor
from prism_marl.networks.recurrent import RecurrentAgent, recurrent_agent

__all__ = [
    "Inputs",
    "MlpActor",
    "RecurrentAgent",
    "build_agent",
    "mlp_actor",
    "recurrent_agent",
]
