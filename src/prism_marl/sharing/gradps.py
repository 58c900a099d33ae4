"""GradPS: agents share every neuron until their gradients of it cancel out; then it is cloned, and agents that pull in
different directions use different clones (Qin et al., ICML 2025; docs/sharing.md says what is ours)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from prism_marl.errors import UserError
from prism_marl.sharing.base import (
    Identity,
    RoleLinear,
    Sharing,
    apply_per_identity,
    check_identity,
    map_layers,
    private,
    select_rows,
)
from prism_marl.sharing.fups import shared_linear

HIGHEST = jax.lax.Precision.HIGHEST  # a clone times one must be that clone, on every device


class CloneLinear(RoleLinear):
    """Row j of W_m is C[j, group of m at j]: the clone of neuron j that identity m uses; clones share their bias.

    Clones that nobody uses follow the first one, so whoever is sent to one goes on as before.
    """

    clones: Float[Array, "o k i"]
    bias: Float[Array, " o"]
    felt: Float[Array, "m o"] = private()  # gradients of a factor 1 on each output, added up since the last change
    group: Int[Array, "m o"] = private()
    identities: int = eqx.field(static=True)

    def factor(self) -> Float[Array, "m o"]:
        """Ones, whose gradient arrives in ``felt``."""
        return 1 + self.felt - jax.lax.stop_gradient(self.felt)

    def dense(self) -> Float[Array, "m o i"]:
        return self.factor()[..., None] * jnp.einsum("mok,oki->moi", self.users(), self.clones, precision=HIGHEST)

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.factor() * self.bias

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return apply_per_identity(x, self.dense(), identity) + select_rows(self.dense_bias(), identity)

    def users(self) -> Float[Array, "m o k"]:
        """1 where an identity uses a clone."""
        return jax.nn.one_hot(self.group, self.clones.shape[1], dtype=self.clones.dtype)

    def used(self) -> Bool[Array, "o k"]:
        return jnp.any(self.users() > 0, axis=0)

    def counted(self, gradient: "CloneLinear") -> "CloneLinear":
        """What the agents wanted of each neuron in one update is added up."""
        clones = jnp.where(self.used()[..., None], self.clones, self.clones[:, :1])
        return replace(self, clones=clones, felt=self.felt + gradient.felt)

    def merged(self, closeness: float) -> "CloneLinear":
        """Clones that have not moved apart become one again: their mean, weighted by those who use them."""
        layer, number = self, self.clones.shape[1]
        for one, other in ((k, m) for m in range(number) for k in range(m)):
            pair, users = layer.clones[:, [one, other]], jnp.sum(layer.users(), axis=0)[:, [one, other]]
            lengths = jnp.sum(jnp.linalg.norm(pair, axis=2), axis=1)
            close = jnp.linalg.norm(pair[:, 0] - pair[:, 1], axis=1) < closeness * lengths
            close &= jnp.all(users > 0, axis=1)
            mean = jnp.sum(pair * users[..., None], axis=1) / jnp.maximum(jnp.sum(users, axis=1), 1)[:, None]
            new = jnp.where(close[:, None], mean, pair[:, 0])
            group = jnp.where(close & (layer.group == other), one, layer.group)
            layer = replace(layer, clones=layer.clones.at[:, one].set(new), group=group)
        return layer

    def divided(self, efficiency: float) -> "CloneLinear":
        """Where the gradients of those who share a clone cancel out, |sum| < efficiency * sum of sizes, those with a
        negative one go to a clone that nobody uses, if there is one. This leaves no conflict in either group."""
        layer, number = self, self.clones.shape[1]
        for slot in range(number):
            mine = layer.users()[..., slot] * self.felt
            futile = jnp.abs(jnp.sum(mine, axis=0)) < efficiency * jnp.sum(jnp.abs(mine), axis=0)
            used = layer.used()
            free = jnp.argmin(used, axis=1)
            leave = futile & ~jnp.all(used, axis=1)
            taken = leave[:, None] & (free[:, None] == jnp.arange(number))
            clones = jnp.where(taken[..., None], layer.clones[:, slot][:, None], layer.clones)
            layer = replace(layer, clones=clones, group=jnp.where(leave & (mine < 0), free, layer.group))
        return replace(layer, felt=jnp.zeros_like(self.felt))


def clone_layers(tree: object) -> list[CloneLinear]:
    """In field order, as ``map_layers`` counts them."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, CloneLinear))
    return [leaf for leaf in leaves if isinstance(leaf, CloneLinear)]


@dataclass(frozen=True)
class GradPS(Sharing):
    """Full sharing without an id, in which neurons are cloned where agents' gradients cancel."""

    label: ClassVar[str] = "GradPS"
    agent_id: ClassVar[bool] = False

    method: Literal["gradps"] = "gradps"
    clones: int = 2  # largest number of clones of a neuron (official code: 2 for predators and prey, 3 for SMAC)
    efficiency: float = 0.2  # split a neuron if its agents' summed gradient is below this share of their sizes
    merge: float = 0.02  # merge clones that differ by less than this share of their lengths; 0 = never
    interval: int = 50_000  # environment steps between splits and merges; 0 = never

    def validate(self) -> None:
        if self.clones < 2:
            raise UserError(f"sharing.clones: {self.clones} leaves nothing to divide; the authors use 2 or 3")
        if not 0 <= self.efficiency <= 1:
            raise UserError(f"sharing.efficiency: {self.efficiency} is outside [0, 1]; the paper uses 0.2")
        for name in ("merge", "interval"):
            if getattr(self, name) < 0:
                raise UserError(f"sharing.{name}: {getattr(self, name)} is negative; use 0 for never")

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        shared = shared_linear(fan_in, fan_out, identities=identities, key=key)
        if kind == "recurrent":
            return shared
        return CloneLinear(
            clones=jnp.repeat(shared.weight[:, None], self.clones, axis=1),
            bias=shared.bias,
            felt=jnp.zeros((identities, fan_out)),
            group=jnp.zeros((identities, fan_out), int),
            identities=identities,
        )

    def constrain(self, gradient, step):
        """The optimiser leaves what is counted alone."""
        return map_layers(
            lambda _, layer: eqx.tree_at(lambda g: g.felt, layer, jnp.zeros_like(layer.felt)), gradient, CloneLinear
        )

    def after_update(self, network, gradient):
        felt = clone_layers(gradient)
        return map_layers(lambda place, layer: layer.counted(felt[place]), network, CloneLinear)

    def refresh_interval(self) -> int:
        return self.interval

    def refresh(self, network, experience, key):
        return map_layers(lambda _, layer: layer.merged(self.merge).divided(self.efficiency), network, CloneLinear)
