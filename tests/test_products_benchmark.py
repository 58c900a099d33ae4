"""How the benchmark beside EPyMARL counts matrix products."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def looped(x, weight, rounds):
    """A product of 3 x 4 by 4 x 4 in a scan of five steps, another in a branch, and 3 x 4 by 4 x 2 in a loop."""
    x = jax.lax.scan(lambda x, _: (x @ weight, None), x, None, length=5)[0]
    x = jax.lax.cond(rounds > 0, lambda: jax.jit(jnp.matmul)(x, weight), lambda: x)
    return jax.lax.fori_loop(0, rounds, lambda _, y: y + x @ weight[:, :2], jnp.zeros((3, 2)))


def test_products_are_counted_as_often_as_they_are_computed(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from products import count, operations, scaled  # pyright: ignore[reportMissingImports]

    traced = jax.make_jaxpr(looped)(jnp.ones((3, 4)), jnp.ones((4, 4)), jnp.int32(7))
    found = count(traced, [7])
    assert {(product.left, product.right): times for product, times in found.items()} == {
        ((3, 4), (4, 4)): 6,
        ((3, 4), (4, 2)): 7,
    }
    assert operations(found) == 6 * 2 * 3 * 4 * 4 + 7 * 2 * 3 * 4 * 2
    assert operations(scaled(found, 2)) == 2 * operations(found)
    for rounds in ([], [7, 7]):
        with pytest.raises(SystemExit, match="loops"):
            count(traced, rounds)


def test_products_alone_take_time(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import products  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr(products, "TARGET", 1e5)
    found = products.count(jax.make_jaxpr(jnp.matmul)(jnp.ones((8, 16)), jnp.ones((16, 4))), [])
    assert 0 < products.Alone(found).milliseconds() < 1000
