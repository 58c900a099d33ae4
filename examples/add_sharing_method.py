"""A sharing method of one's own, outside the package: one matrix for everybody, a bias vector for each agent.

A method is two classes. The layer says which matrix and bias each identity uses; the frozen settings say which layer
stands where. The game ``roles/4`` shows what it can do: everybody sees the same and must act differently, so a single
function for all gets 0.25. ``register`` makes the method known, here and in

    prism-marl train roles/4 --sharing own_bias --module examples/add_sharing_method.py
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prism_marl.experiment.presets import preset
from prism_marl.runs.runner import run
from prism_marl.sharing import RoleLinear, Sharing, register
from prism_marl.sharing.base import Identity, check_identity, private, select_rows, uniform_weight
from prism_marl.sharing.fups import shared_linear


class OwnBiasLinear(RoleLinear):
    """y = W x + b_m."""

    weight: Float[Array, "o i"]
    bias: Float[Array, "m o"] = private()  # first axis: identity; counted as overhead
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return jnp.broadcast_to(self.weight, (self.identities, *self.weight.shape))

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.bias

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return x @ self.weight.T + select_rows(self.bias, identity)


@register
@dataclass(frozen=True)
class OwnBias(Sharing):
    """One matrix for everybody, private biases, no id in the input."""

    label: ClassVar[str] = "Own bias"
    agent_id: ClassVar[bool] = False

    method: Literal["own_bias"] = "own_bias"

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        if kind == "recurrent":  # the GRU stays shared
            return shared_linear(fan_in, fan_out, identities=identities, key=key)
        key_weight, key_bias = jax.random.split(key)
        return OwnBiasLinear(
            weight=uniform_weight(key_weight, fan_out, fan_in, fan_in=fan_in),
            bias=uniform_weight(key_bias, identities, fan_out, fan_in=fan_in),
            identities=identities,
        )


def main() -> float:
    """Train on ``roles/4`` and print the final return, of which 1 is the most, and the private numbers of the team."""
    experiment = preset("roles/4", "own_bias").with_option("run.steps", "2000")
    with tempfile.TemporaryDirectory() as root:
        folder = run(experiment, Path(root) / "run")
        rows = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
        sizes = {row["method"]: row for row in json.loads((folder / "footprint.json").read_text())}
    print(f"return {rows[-1]['return']:.2f} after {rows[-1]['step']} steps")
    print(f"private numbers: {sizes['own_bias']['private']}, with Prism {sizes['prism']['private']}")
    return rows[-1]["return"]


if __name__ == "__main__":
    main()
