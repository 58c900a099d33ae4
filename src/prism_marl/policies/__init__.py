"""Trained policies outside of training: numpy alone, no JAX, no trainer, no environment.

``load_policy`` reads a policy file (``.safetensors`` or ``.npz``) or a finished run folder; ``Policy`` acts. What makes
such files from a trained network (``extract``, ``onnx_graph``, ``export``) is imported only where it is asked for.
"""

from prism_marl.policies.contract import Contract
from prism_marl.policies.files import load_policy, read_policy, write_policy
from prism_marl.policies.policy import Policy

__all__ = ["Contract", "Policy", "load_policy", "read_policy", "write_policy"]
