"""HetDPS and MADPS: agents are grouped by how far apart they are, again and again while they learn; a group that splits
takes copies along (Hu et al., AAMAS 2024 and 2026; docs/sharing.md says what is ours)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from prism_marl.errors import UserError
from prism_marl.sharing.base import Experience, RoleLinear, Sharing, map_layers
from prism_marl.sharing.behaviour import pairwise_distances
from prism_marl.sharing.cluster import agent_encodings, matched_labels
from prism_marl.sharing.nops import IndependentLinear, independent_linear

ROUNDS = 200  # of affinity propagation: more than it needs to settle for some hundred agents
DAMPING = 0.8
JITTER = 1e-6  # relative; equal distances would let it swing between equal answers for ever
HIGHEST = jax.lax.Precision.HIGHEST


def affinity_propagation(similarity: Float[Array, "n n"], preference: float, key: Key[Array, ""]) -> Int[Array, " n"]:
    """For each item the one that stands for it. ``preference`` is the similarity below which an item rather stands for
    itself (Frey & Dueck, 2007)."""
    number = len(similarity)
    own = jnp.eye(number, dtype=bool)
    similarity = jnp.where(own, preference, similarity)
    similarity += JITTER * jnp.max(jnp.abs(similarity)) * jax.random.uniform(key, similarity.shape)

    def one(_, messages):
        responsibility, availability = messages
        both = availability + similarity
        best = jnp.argmax(both, axis=1)[:, None]
        first = jnp.max(both, axis=1, keepdims=True)
        second = jnp.max(jnp.where(jnp.arange(number) == best, -jnp.inf, both), axis=1, keepdims=True)
        new = similarity - jnp.where(jnp.arange(number) == best, second, first)
        responsibility = DAMPING * responsibility + (1 - DAMPING) * new
        support = jnp.where(own, responsibility, jnp.maximum(responsibility, 0))
        others = jnp.sum(support, axis=0, keepdims=True) - support
        new = jnp.where(own, others, jnp.minimum(others, 0))
        return responsibility, DAMPING * availability + (1 - DAMPING) * new

    zeros = jnp.zeros_like(similarity)
    responsibility, availability = jax.lax.fori_loop(0, ROUNDS, one, (zeros, zeros))
    stands = jnp.diagonal(responsibility + availability)
    stands = (stands > 0) | ((jnp.arange(number) == jnp.argmax(stands)) & ~jnp.any(stands > 0))
    chosen = jnp.argmax(jnp.where(stands, similarity, -jnp.inf), axis=1)
    return jnp.where(stands, jnp.arange(number), chosen)


@dataclass(frozen=True)
class HetDPS(Sharing):
    """One network for each group of agents; the groups are computed again during training."""

    label: ClassVar[str] = "HetDPS"
    agent_id: ClassVar[bool] = False
    separate_networks: ClassVar[bool] = True
    targets_at_once: ClassVar[bool] = True

    method: Literal["hetdps"] = "hetdps"
    distance: Literal["response", "policy"] = "response"  # by effects of actions (HetDPS), or by actions (MADPS)
    tolerance: float = 1.0  # agents that are closer form a group; 1 is the deviation of a code without data
    merge: Literal["majority", "average"] = "majority"  # network of a merged group: of the majority, or the mean
    interval: int = 100_000  # environment steps between two computations of the groups; 0 = never

    def validate(self) -> None:
        if self.tolerance <= 0:
            raise UserError(f"sharing.tolerance: {self.tolerance} lets no two agents share; the default is 1.0")
        if self.interval < 0:
            raise UserError(f"sharing.interval: {self.interval} is negative; use 0 for never")

    def initial_clusters(self, agents: int) -> Int[Array, " a"]:
        """All together; but agents of one network can never be seen to differ in policy, so those begin apart."""
        return jnp.arange(agents) if self.distance == "policy" else jnp.zeros(agents, int)

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        return independent_linear(fan_in, fan_out, identities=identities, key=key)

    def prepare(self, network, experience, key):
        """Nothing yet; who has this hook is given data by every learner."""
        return network

    def refresh_interval(self) -> int:
        return self.interval

    def refresh(self, network, experience, key):
        """Groups of what was seen lately. As few agents as possible change their network; without data none does."""
        key_codes, key_groups = jax.random.split(key)
        number, old = len(network.clusters), network.clusters
        standing = affinity_propagation(-(self.distances(experience, key_codes) ** 2), -(self.tolerance**2), key_groups)
        groups = matched_labels(old, standing, number)[standing].astype(old.dtype)
        groups = jnp.where(jnp.any(experience.valid), groups, old)
        origin = self.origins(old, groups)

        def moved(_, layer: IndependentLinear) -> IndependentLinear:
            mixed = lambda part: jnp.einsum("gh,h...->g...", origin, part, precision=HIGHEST)  # noqa: E731
            return replace(layer, weight=mixed(layer.weight), bias=mixed(layer.bias))

        network = map_layers(moved, network, IndependentLinear)
        return eqx.tree_at(lambda network: network.clusters, network, groups)

    def distances(self, experience: Experience, key: Key[Array, ""]) -> Float[Array, "a a"]:
        """Wasserstein distances between the agents' codes, which are Gaussians with independent parts."""
        mean, log_variance = agent_encodings(experience, key, self.distance)
        return pairwise_distances(jnp.concatenate([mean, jnp.exp(0.5 * log_variance)], axis=1))

    def origins(self, old: Int[Array, " a"], new: Int[Array, " a"]) -> Float[Array, "m m"]:
        """How much of each old network is in each new one: where its members come from. Networks that nobody uses stay
        as they are."""
        number = old.size
        common = jax.nn.one_hot(new, number).T @ jax.nn.one_hot(old, number)  # members of a new and of an old group
        used = jnp.sum(common, axis=1, keepdims=True) > 0
        if self.merge == "majority":
            first = jnp.argmax(common + 0.5 * jnp.eye(number), axis=1)  # its own one where as many are from another
            return jnp.where(used, jax.nn.one_hot(first, number), jnp.eye(number))
        return jnp.where(used, common / jnp.maximum(jnp.sum(common, axis=1, keepdims=True), 1), jnp.eye(number))
