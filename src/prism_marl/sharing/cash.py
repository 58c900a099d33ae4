"""CASH: a hypernetwork reads what an agent is capable of and writes the weights of its decoder, so that agents with
capabilities that nobody had in training have weights, too (Fu et al., CoRL 2025; docs/sharing.md says what is ours)."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prism_marl.errors import UserError
from prism_marl.sharing.base import (
    Identity,
    Network,
    RoleLinear,
    Sharing,
    apply_per_identity,
    check_identity,
    map_layers,
    private,
    select_rows,
)
from prism_marl.sharing.fups import shared_linear
from prism_marl.sharing.hypermarl import RELU_GAIN, Hypernet, orthogonal

Table = tuple[tuple[float, ...], ...]
"""Capabilities: a row for each identity, and more for those that may come."""


class CapabilityLinear(RoleLinear):
    """W_m = f(c_m) and b_m = g(c_m), where c_m are the capabilities of identity m: given numbers, which never change.

    They are settings, not arrays, so that a network that was trained fits other tables of the same width.
    """

    weights: Hypernet
    biases: Hypernet
    capabilities: Table = eqx.field(static=True)
    row: Int[Array, " m"] = private()  # of the table
    identities: int = eqx.field(static=True)

    def given(self) -> Float[Array, "m c"]:
        """What each identity is capable of."""
        return jnp.asarray(self.capabilities, jnp.float32)[self.row]

    def dense(self) -> Float[Array, "m o i"]:
        return self.weights(self.given())

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.biases(self.given())

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return apply_per_identity(x, self.dense(), identity) + select_rows(self.dense_bias(), identity)


@dataclass(frozen=True)
class CASH(Sharing):
    """A shared encoder, and a decoder whose weights a hypernetwork generates from an agent's capabilities."""

    label: ClassVar[str] = "CASH"
    agent_id: ClassVar[bool] = False
    role_setting: ClassVar[str] = "types"

    method: Literal["cash"] = "cash"
    capabilities: str | None = None  # a row for each agent or unit type, as "1,0.5;0.2,1"; none = one-hot codes
    types: Literal["agent", "role"] = "agent"  # the table has a row for each agent, or for each unit type
    hidden: int = 64  # width of the hypernetwork
    gain: float = RELU_GAIN  # initial scale of generated hidden layers
    values_gain: float = 1.0  # initial scale of a generated layer of action values
    actions_gain: float = 0.01  # initial scale of a generated layer of continuous actions

    def validate(self) -> None:
        if self.hidden < 1:
            raise UserError(f"sharing.hidden: {self.hidden} is not a positive width; the default is 64")
        rows = self.table(0)
        if len({len(row) for row in rows}) > 1 or not all(np.isfinite(number) for row in rows for number in row):
            raise UserError(
                "sharing.capabilities: rows have different lengths or numbers that are not finite; give each agent or "
                "unit type as many numbers as the others, such as '1,0.5;0.2,1'"
            )

    def validate_team(self, agents: int, roles: int) -> None:
        needed, who = (roles, "unit types") if self.by_role() else (agents, "agents")
        given = len(self.table(needed))
        if given < needed:
            raise UserError(f"sharing.capabilities: {given} rows for {needed} {who}; give a row to each of them")

    def identities(self, agents: int, roles: int) -> int:
        return roles if self.by_role() else agents

    def by_role(self) -> bool:
        return self.types == "role"

    def table(self, identities: int) -> Table:
        """The capabilities as numbers: by default each identity is a kind of its own, without likeness to others. Rows
        beyond the team's are allowed, for agents that come later."""
        if self.capabilities is None:
            return tuple(tuple(float(place == row) for place in range(identities)) for row in range(identities))
        try:
            return tuple(tuple(float(word) for word in row.split(",")) for row in self.capabilities.split(";"))
        except ValueError:
            raise UserError(
                f"sharing.capabilities: '{self.capabilities[:40]}' is no table of numbers; write rows such as "
                "'1,0.5;0.2,1'"
            ) from None

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        if kind in ("input", "recurrent") or depth == 0:
            return shared_linear(fan_in, fan_out, identities=identities, key=key)
        gain = {"values": self.values_gain, "actions": self.actions_gain}.get(kind, self.gain)
        table = self.table(identities)
        key_weight, key_bias, key_head = jax.random.split(key, 3)

        def hypernet(key, head):
            return Hypernet(
                hidden=orthogonal(key, 1, self.hidden, len(table[0]), RELU_GAIN)[0],
                hidden_bias=jnp.zeros(self.hidden),
                head=head,
                head_bias=jnp.zeros(head.shape[1:]),
            )

        return CapabilityLinear(
            weights=hypernet(key_weight, orthogonal(key_head, self.hidden, fan_out, fan_in, gain)),
            biases=hypernet(key_bias, jnp.zeros((self.hidden, fan_out))),
            row=jnp.arange(identities) % len(table),  # in turn, where a larger team is only counted
            capabilities=table,
            identities=identities,
        )

    def moved_to(self, network: Network, identities: int) -> Network:
        """A trained network for another team, whose capabilities are the first rows of the table of these settings."""
        table, row = self.table(identities), jnp.arange(identities)

        def other(_, layer: Any) -> Any:
            if isinstance(layer, CapabilityLinear):
                return replace(layer, row=row, capabilities=table, identities=identities)
            return replace(layer, identities=identities)

        return map_layers(other, network, RoleLinear)
