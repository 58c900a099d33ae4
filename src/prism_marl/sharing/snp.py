"""SNP: before training every agent gets a random sub-network of one shared network (Kim & Sung, AAMAS 2023)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from prism_marl.errors import UserError
from prism_marl.sharing.base import RoleGate, RoleLinear, Sharing
from prism_marl.sharing.pruned import pruned_gate, pruned_linear


@dataclass(frozen=True)
class SNP(Sharing):
    """A random node mask per agent, sampled once and never changed."""

    label: ClassVar[str] = "SNP"
    agent_id: ClassVar[bool] = False

    method: Literal["snp"] = "snp"
    ratio: float = 0.1  # share of nodes that are off for each agent
    exact: bool = False  # mask exactly round(ratio * width) nodes, instead of each node with this probability
    prune_output: bool = False  # also mask outputs, as in the paper; but an actuator whose output is masked never moves

    def validate(self) -> None:
        if not 0 <= self.ratio < 1:
            raise UserError(f"sharing.ratio: {self.ratio} is outside [0, 1); the paper uses 0.1")

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        return pruned_linear(
            fan_in,
            fan_out,
            identities=identities,
            key=key,
            kind=kind,
            sample=lambda key, width: self._sample(key, width, identities),
            prune_actions=self.prune_output,
        )

    def gate(self, size, *, identities, key) -> RoleGate:
        return pruned_gate(size, key=key, sample=lambda key, width: self._sample(key, width, identities))

    def _sample(self, key: Key[Array, ""], width: int, identities: int) -> Bool[Array, "m h"]:
        noise = jax.random.uniform(key, (identities, width))
        if self.exact:
            return jnp.argsort(jnp.argsort(noise, axis=1), axis=1) >= round(self.ratio * width)
        return noise >= self.ratio
