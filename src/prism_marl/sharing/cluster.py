"""Clusters of agents: a code per agent, learned from its transitions, then k-means (docs/sharing.md, SePS).

All functions are pure and of fixed shape, so they run under jit and vmap over seeds.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from prism_marl.errors import UserError
from prism_marl.sharing.base import Experience, Sharing
from prism_marl.sharing.fups import SharedLinear, shared_linear

# The official implementation of SePS; RECORDS is ours (it uses all data of its much longer pretraining).
CODE = 10  # numbers per agent code
HIDDEN = 64  # width of encoder and decoder
KL_WEIGHT = 1e-4
LEARNING_RATE = 3e-4
BATCH = 128
EPOCHS = 10
RECORDS = 102_400  # most (agent, step) records that are used: 800 batches an epoch
RESTARTS = 10  # of k-means; the best result is taken
LLOYD_STEPS = 100  # more than k-means needs to converge for a few thousand agents
MOST_CLUSTERS = 9  # largest number that is tried if the number of clusters is not set


class IdentityVAE(eqx.Module):
    """Predicts the next observation and the reward, with a code that depends only on the agent's index."""

    encoder: tuple[SharedLinear, SharedLinear]
    decoder: tuple[SharedLinear, SharedLinear, SharedLinear]

    def encode(self, agent: Float[Array, "b a"]) -> tuple[Float[Array, "b z"], Float[Array, "b z"]]:
        """Mean and log-variance of the code, from a one-hot index."""
        first, last = self.encoder
        mean, log_variance = jnp.split(last(jax.nn.relu(first(agent))), 2, axis=-1)
        return mean, log_variance

    def decode(self, inputs: Float[Array, "b i"]) -> Float[Array, "b o"]:
        """The next observation and the reward, from code, observation and action."""
        first, second, last = self.decoder
        return last(jax.nn.relu(second(jax.nn.relu(first(inputs)))))


class Records(eqx.Module):
    """One row per agent and step."""

    agent: Float[Array, "b a"]
    given: Float[Array, "b i"]  # observation and action
    target: Float[Array, "b o"]  # next observation and reward
    weight: Float[Array, " b"]  # 0 for rows that are not valid experience


def identity_vae(agents: int, given: int, target: int, key: Key[Array, ""]) -> IdentityVAE:
    """A new model with PyTorch's default initialisation."""
    sizes = ((agents, HIDDEN), (HIDDEN, 2 * CODE), (CODE + given, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, target))
    keys = jax.random.split(key, len(sizes))
    layers = [
        shared_linear(fan_in, fan_out, identities=1, key=key)
        for (fan_in, fan_out), key in zip(sizes, keys, strict=True)
    ]
    return IdentityVAE(encoder=(layers[0], layers[1]), decoder=(layers[2], layers[3], layers[4]))


def vae_loss(vae: IdentityVAE, records: Records, key: Key[Array, ""]) -> Float[Array, ""]:
    """Squared error plus a small KL term, both summed over the batch and over dimensions."""
    mean, log_variance = vae.encode(records.agent)
    code = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
    predicted = vae.decode(jnp.concatenate([code, records.given], axis=-1))
    error = jnp.sum((predicted - records.target) ** 2, axis=-1)
    divergence = 0.5 * jnp.sum(mean**2 + jnp.exp(log_variance) - 1 - log_variance, axis=-1)
    return jnp.sum(records.weight * (error + KL_WEIGHT * divergence))


def agent_codes(experience: Experience, key: Key[Array, ""]) -> Float[Array, "a z"]:
    """The code of each agent: the mean of its encoding."""
    return agent_encodings(experience, key)[0]


def agent_encodings(
    experience: Experience, key: Key[Array, ""], about: Literal["response", "policy"] = "response"
) -> tuple[Float[Array, "a z"], Float[Array, "a z"]]:
    """Fit the model to a random sample of the valid experience; returns means and log-variances of all agents. Codes
    are about what follows an agent's action, or about which action it takes."""
    key_init, key_choice, key_fit = jax.random.split(key, 3)
    steps, agents, _ = experience.local.shape
    rows = steps * agents
    batch = min(BATCH, rows)
    batches = min(RECORDS, rows) // batch

    def flat(*parts):
        return jnp.concatenate([part.reshape(rows, -1) for part in parts], axis=-1)

    reward = jnp.broadcast_to(experience.reward[:, None], (steps, agents))
    given, target = flat(experience.local, experience.action), flat(experience.next_local, reward)
    if about == "policy":
        given, target = flat(experience.local), flat(experience.action)
    valid = experience.valid.reshape(rows).astype(given.dtype)
    # Valid rows get a score in [1, 2), others in [0, 1): others are chosen last, and their weight is 0.
    score = valid + jax.random.uniform(key_choice, (rows,))
    _, chosen = jax.lax.top_k(score, batches * batch)

    optimiser = optax.adam(LEARNING_RATE)
    vae = identity_vae(agents, given.shape[1], target.shape[1], key_init)

    def update(carry, now):
        vae, moments = carry
        row, key = now
        records = Records(jax.nn.one_hot(row % agents, agents), given[row], target[row], valid[row])
        updates, moments = optimiser.update(jax.grad(vae_loss)(vae, records, key), moments)
        return (eqx.apply_updates(vae, updates), moments), None

    def epoch(carry, key):
        key_order, key_noise = jax.random.split(key)
        order = jax.random.permutation(key_order, chosen).reshape(batches, batch)
        return jax.lax.scan(update, carry, (order, jax.random.split(key_noise, batches)))

    start = (vae, optimiser.init(eqx.filter(vae, eqx.is_inexact_array)))
    (vae, _), _ = jax.lax.scan(epoch, start, jax.random.split(key_fit, EPOCHS))
    return vae.encode(jnp.eye(agents))


def squared_distances(points: Float[Array, "n z"], centres: Float[Array, "k z"]) -> Float[Array, "n k"]:
    """Squared distance of every point to every centre."""
    return jnp.sum((points[:, None] - centres[None]) ** 2, axis=-1)


def kmeans(
    points: Float[Array, "n z"], clusters: int, key: Key[Array, ""]
) -> tuple[Int[Array, " n"], Float[Array, "k z"]]:
    """Labels and centres with the smallest sum of squared distances among ten runs from k-means++ starts."""
    runs = jax.vmap(lambda key: _kmeans_once(points, clusters, key))(jax.random.split(key, RESTARTS))
    labels, centres, cost = runs
    best = jnp.argmin(cost)
    return labels[best], centres[best]


def _kmeans_once(points, clusters, key):
    keys = jax.random.split(key, clusters)
    centres = points[jax.random.randint(keys[0], (1,), 0, points.shape[0])]
    for key_next in keys[1:]:  # k-means++: the next centre is a point, sampled by its squared distance
        nearest = jnp.min(squared_distances(points, centres), axis=1)
        chosen = jax.random.categorical(key_next, jnp.log(nearest + 1e-30))
        centres = jnp.concatenate([centres, points[chosen][None]])

    def lloyd(_, centres):
        member = jax.nn.one_hot(jnp.argmin(squared_distances(points, centres), axis=1), clusters)
        count = member.sum(axis=0)[:, None]
        means = jnp.matmul(member.T, points, precision=jax.lax.Precision.HIGHEST) / jnp.maximum(count, 1)
        return jnp.where(count > 0, means, centres)  # an empty cluster stays where it is

    centres = jax.lax.fori_loop(0, LLOYD_STEPS, lloyd, centres)
    distance = squared_distances(points, centres)
    return jnp.argmin(distance, axis=1), centres, jnp.sum(jnp.min(distance, axis=1))


def davies_bouldin(
    points: Float[Array, "n z"], labels: Int[Array, " n"], centres: Float[Array, "k z"]
) -> Float[Array, ""]:
    """Mean over clusters of the largest ratio (spread + spread') / distance of centres; small means well separated.

    Empty clusters are left out; two clusters with the same centre make the index infinite.
    """
    member = jax.nn.one_hot(labels, centres.shape[0])
    count = member.sum(axis=0)
    to_centre = jnp.sqrt(squared_distances(points, centres))
    spread = jnp.sum(member * to_centre, axis=0) / jnp.maximum(count, 1)
    apart = jnp.sqrt(squared_distances(centres, centres))
    pair = (count > 0)[:, None] & (count > 0)[None] & ~jnp.eye(count.size, dtype=bool)
    ratio = (spread[:, None] + spread[None]) / jnp.where(apart > 0, apart, 1.0)
    ratio = jnp.where(pair, jnp.where(apart > 0, ratio, jnp.inf), 0.0)
    return jnp.sum(jnp.max(ratio, axis=1)) / jnp.maximum(jnp.sum(count > 0), 1)


def best_kmeans(
    points: Float[Array, "n z"], most: int, key: Key[Array, ""]
) -> tuple[Int[Array, " n"], Float[Array, "k z"]]:
    """k-means for every k from 2 to ``most``; the smallest Davies-Bouldin index wins. Unused centres are zero."""
    tried = []
    for k, key_k in zip(range(2, most + 1), jax.random.split(key, most - 1), strict=True):
        labels, centres = kmeans(points, k, key_k)
        score = davies_bouldin(points, labels, centres)
        tried.append((score, labels, jnp.pad(centres, ((0, most - k), (0, 0)))))
    scores, labels, centres = (jnp.stack(part) for part in zip(*tried, strict=True))
    best = jnp.argmin(scores)
    return labels[best], centres[best]


def matched_labels(old: Int[Array, " n"], new: Int[Array, " n"], clusters: int) -> Int[Array, " k"]:
    """For each new label the old label that replaces it, so that as few agents as possible change their label.

    An exact assignment (Hungarian algorithm) on the table of common members.
    """
    common = jax.nn.one_hot(new, clusters).T @ jax.nn.one_hot(old, clusters)
    rows, columns = optax.assignment.hungarian_algorithm(-common)
    return jnp.zeros(clusters, int).at[rows].set(columns)


@dataclass(frozen=True)
class Clustered(Sharing):
    """The part that SePS and AdaPS have in common: agents are clustered once, after a phase of random actions."""

    agent_id: ClassVar[bool] = False

    clusters: int | None = 2  # number of clusters: 3 on SMACv2, 2 elsewhere (Prism); None = Davies-Bouldin decides
    pretraining: int = 50_000  # environment steps with random actions before clustering; 200k in SePS' code

    def validate(self) -> None:
        if self.clusters is not None and self.clusters < 1:
            raise UserError(f"sharing.clusters: {self.clusters} is not a positive number; the default is 2")
        if self.pretraining < 1:
            raise UserError(
                f"sharing.pretraining: {self.pretraining} steps leave nothing to cluster; the default is 50000"
            )

    def identities(self, agents: int, roles: int) -> int:
        """With ``clusters=None`` the network has the largest number of identities that can be chosen; if k clusters are
        chosen, only the first k identities are used."""
        if self.clusters is None:
            if agents < 3:
                raise UserError(
                    f"sharing.clusters: choosing their number needs at least 3 agents, and this task has {agents}; "
                    f"set sharing.clusters to 1 or {agents}"
                )
            return min(MOST_CLUSTERS, agents - 1)
        if self.clusters > agents:
            raise UserError(
                f"sharing.clusters: {agents} agents cannot fill {self.clusters} clusters; set it to at most {agents}"
            )
        return self.clusters

    def initial_clusters(self, agents: int) -> Int[Array, " a"]:
        return jnp.zeros(agents, int)

    def pretraining_steps(self) -> int:
        return self.pretraining

    def group(self, experience: Experience, key: Key[Array, ""]) -> tuple[Int[Array, " a"], Float[Array, "k z"]]:
        """The label of every agent and the centre of every cluster."""
        key_codes, key_kmeans = jax.random.split(key)
        codes = agent_codes(experience, key_codes)
        clusters = self.identities(codes.shape[0], roles=1)
        if self.clusters is None:
            return best_kmeans(codes, clusters, key_kmeans)
        return kmeans(codes, clusters, key_kmeans)
