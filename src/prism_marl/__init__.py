"""Parameter sharing in multi-agent reinforcement learning."""

__version__ = "0.1.0"
