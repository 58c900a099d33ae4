"""SePS: agents are clustered by their transitions and rewards; every cluster has its own network
(Christianos et al., ICML 2021)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx

from prism_marl.sharing.base import RoleLinear
from prism_marl.sharing.cluster import Clustered
from prism_marl.sharing.nops import independent_linear


@dataclass(frozen=True)
class SePS(Clustered):
    """One network per cluster of agents; no agent id."""

    label: ClassVar[str] = "SePS"
    separate_networks: ClassVar[bool] = True

    method: Literal["seps"] = "seps"

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        return independent_linear(fan_in, fan_out, identities=identities, key=key)

    def prepare(self, network, experience, key):
        labels, _ = self.group(experience, key)
        return eqx.tree_at(lambda agent: agent.clusters, network, labels)
