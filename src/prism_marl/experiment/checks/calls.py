"""Small tools of the checks: call the user's code, and compare trees of arrays."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.errors import UserError


def guarded(what: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call the user's code; what it raises becomes a sentence."""
    try:
        return call(*arguments)
    except UserError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
        text = lines[0] if len(lines[0]) <= 300 else f"{lines[0][:297]}..."
        raise UserError(f"{what}: fails with {type(error).__name__}: {text}") from error


def quick(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled for the CPU, where products are exact, and without optimisations, which take longer than they save."""
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    compiled = jax.jit(function, compiler_options=options)

    def call(*arguments: Any) -> Any:
        with jax.default_device(jax.devices("cpu")[0]), jax.default_matmul_precision("highest"):
            return compiled(*arguments)

    return call


def layout(tree: Any) -> Any:
    """Structure, shapes and types of a tree of arrays or of shapes."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def difference(one: Any, other: Any) -> str:
    """The first leaf in which two trees of shapes differ."""
    found, after = (jax.tree_util.tree_leaves_with_path(tree) for tree in (one, other))
    for (path, old), (place, new) in zip(found, after, strict=False):
        if path == place and (old.shape, old.dtype) != (new.shape, new.dtype):
            name = jax.tree_util.keystr(path)
            return f"{name} was {old.dtype}{list(old.shape)} and is {new.dtype}{list(new.shape)}"
    return (
        f"it had {len(found)} arrays and has {len(after)}" if len(found) != len(after) else "its structure is another"
    )


def copied(tree: Any) -> Any:
    """Copies in numpy."""
    return jax.tree.map(np.array, tree)


def same(one: Any, other: Any) -> bool:
    """Equal bits of arrays and keys."""
    raw = [jax.tree.leaves(jax.tree.map(_plain, tree)) for tree in (one, other)]
    return len(raw[0]) == len(raw[1]) and all(
        a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(*raw, strict=True)
    )


def _plain(leaf: Any) -> np.ndarray:
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)
