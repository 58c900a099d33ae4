"""Multi-head: one trunk for all agents and, from a chosen depth on, a head of layers for each."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from prism_marl.errors import UserError
from prism_marl.sharing.base import RoleLinear, Sharing
from prism_marl.sharing.fups import shared_linear
from prism_marl.sharing.nops import independent_linear


@dataclass(frozen=True)
class MultiHead(Sharing):
    """Shared layers, and behind them private last layers for each agent (from `depth` on)."""

    label: ClassVar[str] = "Multi-head"

    method: Literal["multihead"] = "multihead"
    depth: int | None = field(  # first layer that every agent has for itself: fc1 is 0; none = the last one alone
        default=None, metadata={"since": 2}
    )

    def validate(self) -> None:
        if self.depth is not None and self.depth < 0:
            raise UserError(f"sharing.depth: {self.depth} is no layer; the first one, fc1, is 0")

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        # The GRU stands behind fc1 and has its depth: it belongs to the heads if fc1 does.
        own = kind in ("values", "actions") or (self.depth is not None and depth >= self.depth)
        build = independent_linear if own else shared_linear
        return build(fan_in, fan_out, identities=identities, key=key)
