"""System neural diversity (Bettini, Shankar and Prorok, 2023): how differently agents act on the same observations.

The distance of two agents is the mean, over observations that the team has made, of the distance between what one and
what the other would do there; system neural diversity is its mean over all pairs. The observations are those of all
agents: agent i acts on what agent k saw, with its own matrices and its own id. A policy with a memory reads all that k
saw and did before.

The distance between two distributions of actions is a Wasserstein distance. Continuous: of two Gaussians around their
means, sqrt(|m_i - m_j|^2 + |s_i - s_j|^2); deterministic policies have equal deviations, so it is the distance of their
actions. Discrete: actions are equally far apart, so it is the total variation, between 0 and 1. Policies that sample
are softmax distributions. Action values are no distribution and have the task's scale, which a softmax of them would
measure; such a policy takes the best action, and the distance is the share of observations on which the two differ.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prism_marl.policies.policy import UNAVAILABLE, Policy

HISTORIES = 4  # for each episode: what single agents saw in it, on which policies with a memory are compared
LONGEST = 200  # steps of each
OBSERVATIONS = 128  # for each episode: those on which policies without a memory are compared
FRESH = 8  # networks that tell what chance is


class Seen(NamedTuple):
    """What agents saw: [t, k, ...] of k sequences, each of one agent in one episode."""

    local: np.ndarray  # [t, k, o]
    last: np.ndarray  # [t, k]: the action before, -1 at the start; of no account where actions are continuous
    avail: np.ndarray  # [t, k, u]
    counts: np.ndarray  # [t, k]: the episode goes on, and the agent has a choice
    role: np.ndarray  # [t, k, n]: the roles of all agents at this moment
    agent: np.ndarray  # [k]: whose observations they are


def histories(episodes: dict[str, np.ndarray], *, memory: bool, kind: str) -> Seen:
    """Evenly spaced sequences out of episodes [t, b, ...] of one seed; single steps for policies without a memory.
    ``episodes`` has ``local``, ``avail`` and ``role`` of each step, ``action`` and ``valid``."""
    local, avail, role, action, valid = (episodes[name] for name in ("local", "avail", "role", "action", "valid"))
    steps, rows, agents = local.shape[:3]
    choice = avail.sum(axis=-1) > 1 if kind == "discrete" else avail.any(axis=-1)
    counts = valid[..., None] & choice
    last = np.full((steps, rows, agents), -1)
    if kind == "discrete":
        last[1:] = action[: steps - 1]
    if memory:
        steps = min(steps, LONGEST)
        pairs = _some(np.flatnonzero(counts[:steps].any(axis=0)), HISTORIES * rows)
        row, agent = pairs // agents, pairs % agents
        take = (slice(steps), row, agent)
        return Seen(local[take], last[take], avail[take], counts[take], role[:steps, row], agent)
    places = _some(np.flatnonzero(counts), OBSERVATIONS * rows)
    step, row, agent = places // (rows * agents), places // agents % rows, places % agents
    take = (step, row, agent)
    parts = (local[take], last[take], avail[take], counts[take], role[step, row])
    return Seen(*(part[None] for part in parts), agent=agent)


def _some(places: np.ndarray, most: int) -> np.ndarray:
    return places[np.unique(np.linspace(0, len(places) - 1, min(len(places), most)).round().astype(int))]


def policy_distances(policy: Policy, seen: Seen, agents: np.ndarray, *, own_id: bool = True) -> np.ndarray:
    """The mean distance [n, n] between what every two of some agents would do. Without ``own_id`` all of them act under
    the id of the one who saw it, so that only their matrices tell them apart."""
    c = policy.contract
    if not len(seen.agent) or not seen.counts.any():
        return np.full((len(agents), len(agents)), np.nan)
    # Agents that use the same numbers in the same way are one: their distance is exactly 0, whatever rounding does.
    alike = all(len(value) == 1 for name, value in policy.tensors.items() if not name.endswith((".U", ".V")))
    keys = [
        (
            int(agent) if c.by_role and not alike else 0 if alike else c.identity[agent],
            int(agent) * bool(own_id and c.ids),
        )
        for agent in agents
    ]
    different = list(dict.fromkeys(keys))
    firsts = np.array([agents[keys.index(key)] for key in different])
    outputs = _outputs(policy, seen, firsts, own_id=own_id)
    apart = _distances(policy, outputs, seen, firsts)
    place = [different.index(key) for key in keys]
    return apart[np.ix_(place, place)]


def system_diversity(distances: np.ndarray) -> float:
    """The mean of a table of distances over all pairs; 0 for one agent alone."""
    above = np.triu_indices(len(distances), 1)
    return float(distances[above].mean()) if len(above[0]) else 0.0


def chance_diversity(policy: Policy, seen: Seen) -> float:
    """What separate networks of the same sizes with fresh random numbers differ by on the same observations: the level
    that says whether a diversity is small or large."""
    c, rng = policy.contract, np.random.default_rng(0)
    tensors = {"explore": np.zeros((1, 1), np.float32)}
    for name, layer in policy.layers.items():
        bound = layer.inputs**-0.5  # PyTorch's default, with which separate networks of ours begin
        for part, sizes in (("weight", (layer.inputs, layer.outputs)), ("bias", (layer.outputs,))):
            tensors[f"{name}.{part}"] = rng.uniform(-bound, bound, (FRESH, *sizes)).astype(np.float32)
    contract = replace(c, agents=FRESH, roles=FRESH, by_role=False, identity=tuple(range(FRESH)))
    return system_diversity(policy_distances(Policy(contract, tensors), seen, np.arange(FRESH)))


def _outputs(policy: Policy, seen: Seen, agents: np.ndarray, *, own_id: bool) -> np.ndarray:
    """What the networks of some agents say to all that was seen: [t, k, n, u]."""
    c, number = policy.contract, len(agents)
    identity = tuple(c.identity[agent] for agent in agents)
    bare = replace(  # reads whole input vectors, which are put together here
        c,
        agents=number,
        identity=identity,
        observation=c.inputs,
        ids=0,
        last_action=False,
        scale=1.0,
        shared_observation=False,
        observation_names=(),
        observation_meaning=(),
    )
    network = Policy(bare, policy.tensors)
    held = np.zeros((len(seen.agent), number, c.hidden), np.float32)
    ids = np.eye(max(c.ids, 1), c.ids, dtype=np.float32)
    whose = np.broadcast_to(agents, held.shape[:2]) if own_id else np.broadcast_to(seen.agent[:, None], held.shape[:2])
    spoken = []
    for local, last, role in zip(seen.local, seen.last, seen.role, strict=True):
        parts = [local * np.float32(c.scale)]
        if c.last_action:
            parts.append((last[:, None] == np.arange(c.actions)).astype(np.float32))
        x = np.concatenate(parts, axis=-1)[:, None]
        x = np.broadcast_to(x, (len(x), number, x.shape[-1]))
        if c.ids:
            x = np.concatenate([x, ids[whose % len(ids)]], axis=-1)
        values, held = network.outputs(x, held, role[:, agents] if c.by_role else None)
        spoken.append(values)
    return np.stack(spoken)


def _distances(policy: Policy, outputs: np.ndarray, seen: Seen, agents: np.ndarray) -> np.ndarray:
    """The mean distance over what counts, [n, n]."""
    c, counts = policy.contract, seen.counts
    legal = (
        np.where(seen.avail[..., None, :], outputs, UNAVAILABLE)[counts] if c.kind == "discrete" else outputs[counts]
    )
    number = len(agents)
    found = np.zeros((number, number))
    spread = np.zeros((number, 1))
    if c.rule == "argmax":
        acts = legal.argmax(axis=-1)  # [s, n]
        acts = np.eye(c.actions)[acts] if c.exploration != "softmax" else _softmax(legal)
    else:
        acts, table = legal, policy.tensors["explore"]
        spread = table[[c.identity[agent] for agent in agents]] if len(table) > 1 else np.zeros((number, 1))
    for one in range(number):
        for other in range(one):
            gap = acts[:, one].astype(float) - acts[:, other]
            if c.rule == "argmax":
                apart = 0.5 * np.abs(gap).sum(axis=-1)
            else:
                apart = np.sqrt((gap**2).sum(axis=-1) + ((spread[one] - spread[other]) ** 2).sum())
            found[one, other] = found[other, one] = apart.mean()
    return found


def _softmax(values: np.ndarray) -> np.ndarray:
    shares = np.exp(values.astype(float) - values.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)
