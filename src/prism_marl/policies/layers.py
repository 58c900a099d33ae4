"""Linear layers of a policy file: one matrix for all, one for each identity, or shared factors.

A file holds for the layer NAME either ``NAME.weight`` [m, i, o], or ``NAME.V`` [i, r], ``NAME.s`` [m, r] and
``NAME.U`` [r, o], which mean V diag(s) U; and always ``NAME.bias`` [m, o]. m is 1 where all use the same.
"""

from dataclasses import dataclass

import numpy as np

from prism_marl.errors import UserError
from prism_marl.policies.contract import Contract


@dataclass(frozen=True)
class Layer:
    """What both forms have in common."""

    name: str
    bias: np.ndarray  # [m, o]
    by_role: bool  # the identity may differ from sample to sample

    @property
    def inputs(self) -> int:
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        return self.bias.shape[-1]

    @property
    def multiply_adds(self) -> int:
        """Of one row."""
        raise NotImplementedError

    def __call__(self, x: np.ndarray, identity: np.ndarray) -> np.ndarray:
        """x [*b, a, i] times the matrices of the identities [a], or [*b, a] where roles decide."""
        raise NotImplementedError

    def check(self, inputs: int, outputs: int, source: str) -> None:
        """Raise unless the layer has these sizes."""
        if (self.inputs, self.outputs) != (inputs, outputs):
            raise UserError(
                f"{source}: its layer '{self.name}' is {self.inputs} to {self.outputs}, which does not fit its "
                f"description ({inputs} to {outputs}); export the run again",
                code=1,
            )


@dataclass(frozen=True)
class Dense(Layer):
    """Plain matrices."""

    weight: np.ndarray  # [m, i, o]

    @property
    def inputs(self) -> int:
        return self.weight.shape[1]

    @property
    def multiply_adds(self) -> int:
        return self.weight.shape[1] * self.weight.shape[2]

    def __call__(self, x: np.ndarray, identity: np.ndarray) -> np.ndarray:
        if len(self.weight) == 1:
            return x @ self.weight[0] + rows_of(self.bias, identity)
        if not self.by_role:  # one product for each agent, over all samples
            moved = np.moveaxis(x, -2, 0).reshape(len(identity), -1, x.shape[-1])
            out = np.matmul(moved, self.weight[identity]).reshape(len(identity), *x.shape[:-2], -1)
            return np.moveaxis(out, 0, -2) + rows_of(self.bias, identity)
        out = np.empty((*x.shape[:-1], self.outputs), np.float32)
        for role in np.unique(identity):
            chosen = identity == role
            out[chosen] = x[chosen] @ self.weight[role]
        return out + rows_of(self.bias, identity)


@dataclass(frozen=True)
class Factored(Layer):
    """Shared factors, and the singular values of each identity."""

    V: np.ndarray  # [i, r]
    s: np.ndarray  # [m, r]
    U: np.ndarray  # [r, o]

    @property
    def inputs(self) -> int:
        return self.V.shape[0]

    @property
    def multiply_adds(self) -> int:
        return (self.inputs + self.outputs + 1) * self.V.shape[1]

    def __call__(self, x: np.ndarray, identity: np.ndarray) -> np.ndarray:
        return ((x @ self.V) * rows_of(self.s, identity)) @ self.U + rows_of(self.bias, identity)


def rows_of(table: np.ndarray, identity: np.ndarray) -> np.ndarray:
    """The row of each identity; the only one where there is one for all."""
    return table[0] if len(table) == 1 else table[identity]


def layer_of(name: str, tensors: dict[str, np.ndarray], contract: Contract, source: str) -> Layer:
    """Take a layer's arrays out of ``tensors``. Raises if they are missing or do not fit each other."""
    rows = contract.roles if contract.by_role else max(contract.identity) + 1
    found = {part: tensors.pop(f"{name}.{part}", None) for part in ("weight", "V", "s", "U", "bias")}
    arrays = {part: value for part, value in found.items() if value is not None}
    axes = {"weight": 3, "V": 2, "s": 2, "U": 2, "bias": 2}
    good = all(value.ndim == axes[part] and value.dtype == np.float32 for part, value in arrays.items())
    tables = [arrays[part] for part in ("weight", "s", "bias") if part in arrays]
    good = good and all(len(table) == 1 or len(table) >= rows for table in tables)
    if good and set(arrays) == {"weight", "bias"} and arrays["weight"].shape[2] == arrays["bias"].shape[1]:
        return Dense(name, arrays["bias"], contract.by_role, arrays["weight"])
    if good and set(arrays) == {"V", "s", "U", "bias"}:
        V, s, U, bias = (arrays[part] for part in ("V", "s", "U", "bias"))
        if V.shape[1] == s.shape[1] == U.shape[0] and U.shape[1] == bias.shape[1]:
            return Factored(name, bias, contract.by_role, V, s, U)
    raise UserError(f"{source}: the arrays of its layer '{name}' are missing or strange; export the run again", code=1)
