"""The SVD of initial weights, computed on the host in float64, so that the factors are the same on every device.

Inside a compiled program this needs a callback, and XLA does not cache programs with callbacks. Therefore ``draw`` runs
a function that needs SVDs as two programs: the first returns the matrices, the host computes their SVDs, and the second
takes the factors. Both can be cached, so a second start need not compile them.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Key


class Factors(NamedTuple):
    """matrix = U diag(s) V^T; arrays, or their shapes."""

    U: Any
    s: Any
    V: Any


Call = Callable[..., Any]  # calls a program, given its name, function and arguments


def call_now(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Compile and call a function; other implementations cache the program under the name."""
    return jax.jit(function)(*arguments)


_replacement: ContextVar[Callable[[Array], Factors] | None] = ContextVar("replacement", default=None)


def svd(matrix: Float[Array, "o i"]) -> Factors:
    """Thin SVD of a matrix inside a compiled program."""
    replacement = _replacement.get()
    if replacement is not None:
        return replacement(matrix)
    return jax.pure_callback(_on_host, _shapes(matrix), matrix, vmap_method="broadcast_all")


def draw(function: Callable[[Key[Array, ""]], Any], keys: Key[Array, " n"], call: Call = call_now) -> Any:
    """``vmap(function)(keys)``, with callbacks if called inside another program, else without. A matrix must not depend
    on factors of another matrix. The two programs are named ``matrices`` and ``networks``."""
    if isinstance(keys, Tracer):
        return jax.vmap(function)(keys)

    def collect(key):
        matrices: list[Array] = []
        with _replaced(lambda matrix: _record(matrices, matrix)):
            function(key)
        return matrices

    def build(key, factors):
        given = iter(factors)
        with _replaced(lambda matrix: next(given)):
            return function(key)

    matrices = call("matrices", jax.vmap(collect), keys)
    factors = [_on_host(matrix) for matrix in matrices]
    return call("networks", jax.vmap(build), keys, factors)


@contextlib.contextmanager
def _replaced(replacement: Callable[[Array], Factors]) -> Iterator[None]:
    """Inside the block ``svd`` calls ``replacement``."""
    token = _replacement.set(replacement)
    try:
        yield
    finally:
        _replacement.reset(token)


def _record(matrices: list[Array], matrix: Array) -> Factors:
    """Append the matrix; returns zeros of the shapes of its factors."""
    matrices.append(matrix)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), _shapes(matrix))


def _shapes(matrix: Array) -> Any:
    fan_out, fan_in = matrix.shape
    rank = min(fan_out, fan_in)
    return Factors(*(jax.ShapeDtypeStruct(shape, matrix.dtype) for shape in ((fan_out, rank), (rank,), (fan_in, rank))))


def _on_host(matrix: Any) -> Any:
    matrix = np.asarray(matrix)
    left, values, right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    return Factors(*(part.astype(matrix.dtype) for part in (left, values, np.swapaxes(right, -1, -2))))
