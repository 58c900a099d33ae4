"""Singular values of fresh matrices, computed on the host in float64: the same factors on every device.

Inside a compiled program that takes a callback, and XLA keeps no program that calls back. ``draw`` therefore runs a
function that asks for SVDs as two programs with the host's work between them: one returns the matrices, the other takes
the factors. Both can be kept, so that a second start finds them.
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


Call = Callable[..., Any]  # of a program by name, function and arguments


def call_now(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Compile and call a function; the name is for those who keep it."""
    return jax.jit(function)(*arguments)


_answer: ContextVar[Callable[[Array], Factors] | None] = ContextVar("answer", default=None)


def svd(matrix: Float[Array, "o i"]) -> Factors:
    """Thin SVD of a matrix inside a compiled program."""
    answer = _answer.get()
    if answer is not None:
        return answer(matrix)
    return jax.pure_callback(_on_host, _shapes(matrix), matrix, vmap_method="broadcast_all")


def draw(function: Callable[[Key[Array, ""]], Any], keys: Key[Array, " n"], call: Call = call_now) -> Any:
    """``vmap(function)(keys)``; inside another program with callbacks, otherwise without. The matrices must not depend
    on factors of other matrices. The two programs are ``matrices`` and ``networks``."""
    if isinstance(keys, Tracer):
        return jax.vmap(function)(keys)

    def asked(key):
        matrices: list[Array] = []
        with _answering(lambda matrix: _note(matrices, matrix)):
            function(key)
        return matrices

    def answered(key, factors):
        given = iter(factors)
        with _answering(lambda matrix: next(given)):
            return function(key)

    matrices = call("matrices", jax.vmap(asked), keys)
    factors = [_on_host(matrix) for matrix in matrices]
    return call("networks", jax.vmap(answered), keys, factors)


@contextlib.contextmanager
def _answering(answer: Callable[[Array], Factors]) -> Iterator[None]:
    token = _answer.set(answer)
    try:
        yield
    finally:
        _answer.reset(token)


def _note(matrices: list[Array], matrix: Array) -> Factors:
    """Keep the question; the answer only has to have the right shape."""
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
