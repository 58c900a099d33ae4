"""How much of the parameters is effectively private: what changes in the matrices when two agents swap identities."""

from collections.abc import Iterable, Mapping

import numpy as np

from prism_marl.policies.contract import CORE, CORE_LAYERS
from prism_marl.policies.policy import Policy

WHOLE = "all"  # all layers as one


def private_share(policy: Policy, agents: np.ndarray) -> dict[str, float]:
    """For every layer, and for all together: |W_i - W_j|^2 / (|W_i|^2 + |W_j|^2), as a mean over pairs of agents; a
    bias is a column of W. 0: both use the same matrix. 1: the two have nothing in common, as matrices that were drawn
    apart. 2: one is the opposite of the other. Where unit types choose matrices, of pairs of types."""
    who = _identities(policy, agents)
    parts = {name: _energies(tables, who) for name, tables in _tables(policy).items()}
    parts[WHOLE] = (
        np.sum([one for one, _ in parts.values()], axis=0),
        np.sum([one for _, one in parts.values()], axis=0),
    )
    return {name: _mean_share(*found) for name, found in parts.items()}


def masks_apart(masks: Mapping[str, np.ndarray]) -> float:
    """The share of mask entries [identities, entries] of all layers on which two identities differ, as a mean over
    pairs; NaN without masks."""
    differ, entries, pairs = 0.0, 0, 1.0
    for mask in masks.values():
        flat = np.asarray(mask, bool).reshape(len(mask), -1)
        on, identities = flat.sum(axis=0), len(flat)
        pairs = identities * (identities - 1) / 2
        if pairs and flat.shape[1]:
            differ, entries = differ + float((on * (identities - on)).sum()) / pairs, entries + flat.shape[1]
    return differ / entries if entries else float("nan")


def zeroed(policy: Policy) -> dict[str, np.ndarray]:
    """The masks that show in plain matrices: which numbers are exactly 0 for some identity and not for another, or node
    masks. Only layers in which there is such a number."""
    found = {}
    for name, tables in _tables(policy).items():
        on = tables[0] != 0
        if len(on) > 1 and not on.all():
            found[name] = on
    return found


def _identities(policy: Policy, agents: np.ndarray) -> np.ndarray:
    c = policy.contract
    return np.arange(c.roles) if c.by_role else np.array([c.identity[agent] for agent in agents])


def _tables(policy: Policy) -> dict[str, list[np.ndarray]]:
    """Weights and biases of all layers, each with an axis of identities, or one row for all."""
    found = {}
    for name in policy.layers:
        weight = policy.tensors.get(f"{name}.weight")
        if weight is None:  # shared factors, as large policies are kept
            V, s, U = (policy.tensors[f"{name}.{part}"] for part in ("V", "s", "U"))
            weight = np.einsum("ir,mr,ro->mio", V, s, U)
        tables = [weight, policy.tensors[f"{name}.bias"]]
        found[f"{CORE}.{name}" if name in CORE_LAYERS else name] = tables
    if "gate.mask" in policy.tensors:
        found[f"{CORE}.gate"] = [policy.tensors["gate.mask"]]
    return found


def _energies(tables: Iterable[np.ndarray], who: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|W_i - W_j|^2 and |W_i|^2 + |W_j|^2 of all pairs of agents."""
    first, second = np.triu_indices(len(who), 1)
    apart, together = np.zeros(len(first)), np.zeros(len(first))
    for table in tables:
        flat = table.reshape(len(table), -1).astype(float)
        squares = (flat**2).sum(axis=1)
        rows = who if len(flat) > 1 else np.zeros_like(who)
        one, other = rows[first], rows[second]
        # Exactly 0 for the same row; sums of differences, not differences of sums, which would leave rounding behind.
        apart += np.array([((flat[i] - flat[j]) ** 2).sum() for i, j in zip(one, other, strict=True)])
        together += squares[one] + squares[other]
    return apart, together


def _mean_share(apart: np.ndarray, together: np.ndarray) -> float:
    shares = np.divide(apart, together, out=np.zeros_like(apart), where=together > 0)
    return float(shares.mean()) if len(shares) else 0.0
