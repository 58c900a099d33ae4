"""AdaPS: agents are clustered as in SePS; every cluster gets a sub-network of one shared network, and similar clusters
get similar sub-networks (Li et al., ICASSP 2024; the mapping from clusters to masks is ours, docs/sharing.md)."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.errors import UserError
from prism_marl.sharing.base import RoleGate, RoleLinear, map_layers
from prism_marl.sharing.cluster import Clustered, matched_labels
from prism_marl.sharing.fups import shared_linear
from prism_marl.sharing.pruned import NodeMaskedLinear, pruned_gate, pruned_linear


@dataclass(frozen=True)
class AdaPS(Clustered):
    """A node mask per cluster, computed from the cluster's centre by a fixed random projection."""

    label: ClassVar[str] = "AdaPS"

    method: Literal["adaps"] = "adaps"
    ratio: float = 0.1  # share of nodes that are off for each cluster, rounded down to a count (Prism)
    recluster_interval: int = 0  # environment steps between clusterings of recent data; 0 = never
    random_masks: bool = False  # control: random masks that do not depend on the centres ("SNP per cluster")
    projection_seed: int = 0  # seed of the fixed random projections, the same for every seed of a run

    def validate(self) -> None:
        super().validate()
        if not 0 <= self.ratio < 1:
            raise UserError(f"sharing.ratio: {self.ratio} is outside [0, 1); the paper uses 0.1")

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        if kind == "actions":  # a masked action node would be an actuator that never moves
            return shared_linear(fan_in, fan_out, identities=identities, key=key)
        return pruned_linear(
            fan_in,
            fan_out,
            identities=identities,
            key=key,
            kind=kind,
            sample=lambda key, width: self._first_masks(key, width, identities),
            prune_actions=False,
        )

    def gate(self, size, *, identities, key) -> RoleGate:
        return pruned_gate(size, key=key, sample=lambda key, width: self._first_masks(key, width, identities))

    def refresh_interval(self) -> int:
        return self.recluster_interval

    def prepare(self, network, experience, key):
        return self._assign(network, *self.group(experience, key))

    def refresh(self, network, experience, key):
        """Cluster again; labels are chosen so that as few agents as possible change theirs."""
        labels, centres = self.group(experience, key)
        old = matched_labels(network.clusters, labels, centres.shape[0])
        return self._assign(network, old[labels], jnp.zeros_like(centres).at[old].set(centres))

    def _assign(self, network, labels: Int[Array, " a"], centres: Float[Array, "k z"]):
        network = eqx.tree_at(lambda agent: agent.clusters, network, labels)
        if self.random_masks:
            return network
        used = jnp.any(labels[:, None] == jnp.arange(centres.shape[0]), axis=0)
        standard = standardised(centres, used)

        def with_masks(index, layer):
            key = jax.random.fold_in(jax.random.key(self.projection_seed), index)
            return eqx.tree_at(lambda layer: layer.mask, layer, self.masks_of(standard, layer.mask.shape[1], key))

        return map_layers(with_masks, network, (NodeMaskedLinear, RoleGate))

    def masks_of(self, centres: Float[Array, "k z"], width: int, key: Key[Array, ""]) -> Bool[Array, "k h"]:
        """The nodes with the lowest scores under a random projection of the centre are off."""
        projection = jax.random.normal(key, (width, centres.shape[1]))
        scores = jnp.matmul(centres, projection.T, precision=jax.lax.Precision.HIGHEST)
        return self._lowest_off(scores)

    def _first_masks(self, key: Key[Array, ""], width: int, identities: int) -> Bool[Array, "m h"]:
        if self.random_masks:
            return self._lowest_off(jax.random.uniform(key, (identities, width)))
        return jnp.ones((identities, width), bool)  # ``prepare`` replaces them when the clusters are known

    def _lowest_off(self, scores: Float[Array, "m h"]) -> Bool[Array, "m h"]:
        """Exactly floor(ratio * h) nodes of each row are off."""
        off = math.floor(Fraction(str(self.ratio)) * scores.shape[1])
        return jnp.argsort(jnp.argsort(scores, axis=1), axis=1) >= off


def standardised(centres: Float[Array, "k z"], used: Bool[Array, " k"]) -> Float[Array, "k z"]:
    """Every dimension with mean 0 and deviation 1 over the clusters in use."""
    weight = used[:, None] / jnp.maximum(jnp.sum(used), 1)
    centred = centres - jnp.sum(weight * centres, axis=0)
    return centred / jnp.sqrt(jnp.sum(weight * centred**2, axis=0) + 1e-12)
