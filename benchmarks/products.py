"""Which matrix products a program of ours computes, and how long the machine takes for these products alone.

Products are counted in the traced program: those inside a scan as often as it goes round. A loop whose end is only
known while it runs goes round as often as the caller says. Of a branch the dearer side counts.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from in_turn import spent

TARGET = 2e8  # operations for which a product is repeated, so that calling it costs next to nothing


class Product(NamedTuple):
    """One form of ``lax.dot_general``."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    dimensions: Any  # as ``lax.dot_general`` takes them

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        (_, contracted), (_, batch) = self.dimensions
        rest = [size for axis, size in enumerate(self.right) if axis not in (*contracted, *batch)]
        return 2 * math.prod(self.left) * math.prod(rest)


def count(program: Any, rounds: Sequence[float]) -> Counter[Product]:
    """Products of a traced program (``jax.make_jaxpr``). ``rounds`` says for each loop of unknown length that has
    products, from outside to inside and from first to last, how often it goes round."""
    left = iter(rounds)
    found = _count(program.jaxpr, left)
    if next(left, None) is not None:
        raise SystemExit("products: the program has fewer loops than rounds were given")
    return found


def _count(jaxpr: Any, rounds: Iterator[float]) -> Counter[Product]:
    found: Counter[Product] = Counter()
    for eqn in jaxpr.eqns:
        name, given = eqn.primitive.name, eqn.params
        if name == "dot_general":
            shapes = [tuple(value.aval.shape) for value in eqn.invars]
            found[Product(shapes[0], shapes[1], given["dimension_numbers"])] += 1
        elif name == "cond":
            sides = [_count(side.jaxpr, rounds) for side in given["branches"]]
            found.update(max(sides, key=operations))
        elif name == "while":
            if _has_products(given["body_jaxpr"].jaxpr):
                times = next(rounds, None)
                if times is None:
                    raise SystemExit("products: the program has more loops than rounds were given")
                found.update(scaled(_count(given["body_jaxpr"].jaxpr, rounds), times))
        else:
            length = given["length"] if name == "scan" else 1
            for inner in _inner(given):
                found.update(scaled(_count(inner, rounds), length))
    return found


def _inner(given: dict[str, Any]) -> Iterator[Any]:
    """The programs that an operation calls; of one with a gradient of its own the one that is computed."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in given:
            yield getattr(given[name], "jaxpr", given[name])
            return


def _has_products(jaxpr: Any) -> bool:
    return "dot_general" in str(jaxpr)


def scaled(found: Counter[Product], number: float) -> Counter[Product]:
    return Counter({product: amount * number for product, amount in found.items()})  # pyright: ignore


def operations(found: Counter[Product]) -> float:
    """Multiplications and additions of all products."""
    return sum(amount * product.operations for product, amount in found.items())


class Alone:
    """Products alone: each form compiled by itself, and repeated."""

    def __init__(self, found: Counter[Product]):
        self.found = found
        self._programs = {product: _program(product) for product in found}

    def milliseconds(self) -> float:
        """CPU time that the machine takes for all of them."""
        total = 0.0
        for product, amount in self.found.items():
            program, repeats = self._programs[product]
            total += amount * spent(program)[1] / repeats
        return 1000 * total


def _program(product: Product) -> tuple[Any, int]:
    """A compiled loop over one product and how often it goes round. The smaller operand is another one in every second
    round, or the compiler would take the product out of the loop."""
    repeats = max(20, min(20_000, round(TARGET / product.operations)))
    draw = np.random.default_rng(0)
    operands = [jnp.asarray(draw.standard_normal(shape, np.float32)) for shape in (product.left, product.right)]
    small = 0 if operands[0].size < operands[1].size else 1
    operands[small] = jnp.stack([operands[small], operands[small] + 1])

    def multiply(left: Any, right: Any) -> Any:
        return jax.lax.dot_general(left, right, product.dimensions)

    def loop(operands: list[Any], repeats: Any) -> Any:
        def once(index: Any, _: Any) -> Any:
            now = [part[index % 2] if place == small else part for place, part in enumerate(operands)]
            return multiply(*now)

        shapes = [part[0] if place == small else part for place, part in enumerate(operands)]
        result = jax.eval_shape(multiply, *shapes)
        return jax.lax.fori_loop(0, repeats, once, jnp.zeros(result.shape, result.dtype))

    number = jnp.int32(repeats)
    compiled = jax.jit(loop).lower(operands, number).compile()
    jax.block_until_ready(compiled(operands, number))
    return lambda: jax.block_until_ready(compiled(operands, number)), repeats
