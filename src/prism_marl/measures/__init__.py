"""How far the agents of a team differ: in what they do, in their matrices and masks, and in what they learn from.

``behaviour`` compares policies on observations, ``parameters`` compares matrices and masks (both NumPy alone), and
``record`` puts everything about a run at one moment together. ``learners.conflict`` compares gradients.
"""

from prism_marl.measures.behaviour import Seen, histories, policy_distances, system_diversity
from prism_marl.measures.parameters import masks_apart, private_share

__all__ = ["Seen", "histories", "masks_apart", "policy_distances", "private_share", "system_diversity"]
