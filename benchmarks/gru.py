"""The recurrence of the GRU by a scan and by the fused kernels, in one process: medians, ratios and the largest error.

    python benchmarks/gru.py --out rows.jsonl          # the kernels as they are chosen, in float32 and in TF32
    python benchmarks/gru.py --sweep                   # and with other numbers of rows and warps

"forward" runs the online and the target network over episodes; "update" also differentiates the online one. Errors are
those of states and gradients against the scan in full float32, relative to the largest number of each array.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.networks import gru, gru_fused
from prism_marl.networks.gru_kernel import Kernels
from prism_marl.runs.machine import configure_jax
from prism_marl.sharing.base import RoleLinear
from prism_marl.sharing.fups import shared_linear
from prism_marl.sharing.nops import independent_linear

FULL, ROUNDED = jax.lax.Precision.HIGHEST, jax.lax.DotAlgorithmPreset.TF32_TF32_F32
THREE = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
PRODUCTS = {"float32": FULL, "three TF32": THREE, "TF32": ROUNDED}


class Shape(NamedTuple):
    name: str
    seeds: int
    steps: int
    episodes: int
    agents: int
    width: int
    apart: bool = False  # a matrix for each agent


SHAPES = (
    Shape("battle", 5, 201, 128, 5, 64),
    Shape("battle, packed", 5, 202, 32, 5, 64),
    Shape("foraging", 5, 51, 32, 3, 64),
    Shape("foraging, one seed", 1, 51, 32, 3, 64),
    Shape("a matrix each", 5, 51, 32, 3, 64, apart=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", action="store_true", help="all numbers of rows and warps, and all precisions")
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each way, in turn")
    parser.add_argument("--calls", type=int, default=5, help="calls of a measurement")
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument("--tiny", action="store_true", help="small shapes in the interpreter, to try this program out")
    parser.add_argument("--out", type=Path, help="write rows as JSON lines")
    found = parser.parse_args()
    configure_jax()
    rows = []
    for shape in SHAPES:
        if found.only in shape.name:
            rows += measured(shape._replace(seeds=2, steps=4, episodes=3, width=16) if found.tiny else shape, found)
    if found.out:
        found.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


def measured(shape: Shape, found: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each way to compute the recurrence of one shape."""
    given = arrays(shape)
    ways = {name: programs(run) for name, run in all_ways(shape, found.sweep, found.tiny).items()}
    exact, compiled, rows = None, {}, []
    for name, (forward, update) in ways.items():
        started = time.perf_counter()
        try:
            with jax.default_matmul_precision("tensorfloat32" if ", TF32" in name else "highest"):
                compiled[name] = tuple(jax.jit(part).lower(*given).compile() for part in (forward, update))
            spent, result = time.perf_counter() - started, jax.device_get(compiled[name][1](*given))
        except Exception as problem:  # a way that this device cannot go
            print(f"{shape.name}: {name}: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
            compiled.pop(name, None)
            continue
        exact = result if exact is None else exact
        rows.append({"way": name, "error": error(result, exact), "compile_seconds": round(spent, 2)})
    times = medians(compiled, given, found.rounds, found.calls)
    for row in rows:
        forward, update = times[row["way"]]
        row |= {"forward_ms": round(forward, 4), "update_ms": round(update, 4)}
        row |= {
            "forward_ratio": round(times["scan"][0] / forward, 2),
            "update_ratio": round(times["scan"][1] / update, 2),
        }
    show(shape, rows)
    return [shape._asdict() | row | origin() for row in rows]


def all_ways(shape: Shape, sweep: bool, tiny: bool) -> dict[str, Callable[..., Any]]:
    """How to get the states of both networks from (online, target, inputs, target's inputs, fresh)."""

    def scan(online, target, inputs, others, fresh):
        return gru.by_scan(online, inputs, zeros(inputs), None, fresh, (target, others))

    def fused(kernels: Kernels):
        def run(online, target, inputs, others, fresh):
            net, other = (gru_fused.Net(part.hidden, None) for part in (online, target))
            return gru_fused.unroll(kernels, net, inputs, zeros(inputs), None, fresh, (other, others))

        return run

    ways: dict[str, Callable[..., Any]] = {"scan": scan, "scan, TF32": scan}
    chosen = gru_fused.gru_kernel.built()
    for name, product in PRODUCTS.items():
        ways[f"kernel, {name}"] = fused(chosen._replace(product=product, interpret=tiny))
    if sweep:
        for name, product in PRODUCTS.items():
            for rows in (16, 32):
                for warps in (4, 8):
                    ways[f"kernel, {name}, {rows} rows, {warps} warps"] = fused(Kernels(rows, warps, product, tiny))
    return ways


def zeros(inputs):
    return jnp.zeros((*inputs.shape[1:-1], inputs.shape[-1] // 3))


def programs(run: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Of all seeds: the states of both networks, and also the gradient of the online one."""

    def forward(online, target, inputs, others, fresh, weight):
        del weight
        return run(online, target, inputs, others, fresh)

    def update(online, target, inputs, others, fresh, weight):
        def loss(online, inputs):
            states, companion = run(online, target, inputs, others, fresh)
            return jnp.sum(states * weight), (states, companion)

        gradient, states = eqx.filter_grad(lambda both: loss(*both), has_aux=True)((online, inputs))
        return gradient, states

    return jax.vmap(forward), jax.vmap(update)


def arrays(shape: Shape) -> tuple[Any, ...]:
    """Networks, inputs and weights of the states for all seeds."""

    def one(key):
        keys = jax.random.split(key, 6)
        block = (shape.steps, shape.episodes, shape.agents)
        online, target = (network(key, shape) for key in keys[:2])
        inputs, others = (jax.random.normal(key, (*block, 3 * shape.width)) for key in keys[2:4])
        fresh = jax.random.bernoulli(keys[4], 0.02, block[:2])
        return online, target, inputs, others, fresh, jax.random.normal(keys[5], (*block, shape.width))

    return jax.block_until_ready(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), shape.seeds)))


def network(key: Any, shape: Shape) -> gru.RoleGRU:
    make: Callable[..., RoleLinear] = independent_linear if shape.apart else shared_linear
    layer = make(shape.width, 3 * shape.width, identities=shape.agents, key=key)
    return gru.RoleGRU(layer, layer, None)


def medians(compiled: dict[str, Any], given: tuple[Any, ...], rounds: int, calls: int) -> dict[str, Any]:
    """Milliseconds of a call; all ways take turns."""
    times = {(name, part): [] for name in compiled for part in range(2)}
    for turn in range(rounds + 1):
        for name, part in times:
            started, result = time.perf_counter(), None
            for _ in range(calls):
                result = compiled[name][part](*given)
            jax.block_until_ready(result)
            if turn:  # the first one warms up
                times[name, part].append(1000 * (time.perf_counter() - started) / calls)
    return {name: (float(np.median(times[name, 0])), float(np.median(times[name, 1]))) for name in compiled}


def error(result: Any, exact: Any) -> float:
    """The largest difference of any array, relative to that array's largest number."""
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(exact), strict=True)
    return max(float(np.max(np.abs(ours - theirs)) / max(np.max(np.abs(theirs)), 1e-30)) for ours, theirs in pairs)


def origin() -> dict[str, str]:
    asked = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(
        asked, capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    ).stdout.strip()
    return {
        "commit": commit or "unknown",
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def show(shape: Shape, rows: list[dict[str, Any]]) -> None:
    print(f"\n{shape}")
    for row in rows:
        print(
            f"  {row['way']:44} forward {row['forward_ms']:8.3f} ms ({row['forward_ratio']:5.2f} x)  update "
            f"{row['update_ms']:8.3f} ms ({row['update_ratio']:5.2f} x)  error {row['error']:.1e}  "
            f"compiled in {row['compile_seconds']} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
