"""Time and memory of every sharing method against FuPS+ID: one hidden layer, and the whole agent network.

    python benchmarks/layers.py [--agents 3 16 128 1024] [--methods prism snp] [--quick] [--out rows.jsonl]

What is timed is one training step as the package runs it: forward, backward and a plain gradient step, repeated inside
one compiled loop. On a GPU these steps last tens of microseconds, less than it takes to launch them from Python, and
training itself runs whole chunks of updates in one program; the loop measures that. The gradient step chains the
repetitions, so that the compiler can neither drop nor hoist any of them. All methods of a case take turns within each
round and every round gives one ratio to FuPS+ID, so that a machine that slows down slows all alike.

Prism appears three times: as it decides itself from the shapes, and forced into each of its two forms (``factored``:
((x V) * s) U^T for every row; ``matrices``: build one matrix for each agent first).
"""

import argparse
import dataclasses
import functools
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.networks.mlp import mlp_actor
from prism_marl.networks.recurrent import recurrent_agent
from prism_marl.sharing import METHODS, RoleLinear, Sharing, method
from prism_marl.sharing.base import network_regularisers
from prism_marl.sharing.footprint import footprint

BASELINE = "fups_id"
FORMS = {"prism factored": False, "prism matrices": True}


@dataclass(frozen=True)
class Setting:
    """Sizes of one learner's batch; inputs stay the same for every number of agents, so that only agents change."""

    name: str
    inputs: int
    width: int
    actions: int
    steps: int  # 0: no time axis
    batch: int

    def shape(self, agents: int, rows: int) -> tuple[int, ...]:
        """Axes before the features; the batch shrinks where time * batch * agents would exceed ``rows``."""
        per_sample = max(self.steps, 1) * agents
        batch = max(1, min(self.batch, rows // per_sample))
        return (self.steps, batch, agents) if self.steps else (batch, agents)


SETTINGS = (
    Setting("qmix", inputs=21, width=64, actions=6, steps=51, batch=32),
    Setting("matd3", inputs=115, width=256, actions=2, steps=0, batch=1000),
)


class Candidate(NamedTuple):
    """One method, compiled for one case but not yet holding any memory."""

    name: str
    shapes: Any
    program: Any
    held: int  # bytes of arguments and results
    temporary: int  # bytes of everything in between
    numbers: int  # further numbers for one agent more
    bytes: int


@functools.cache
def forced_class(cls: type, matrices: bool) -> type:
    """A subclass whose answer to ``builds_matrices`` is constant."""
    answer = {"builds_matrices": lambda self, shape, identity: matrices, "__module__": __name__}
    return type(f"Forced{cls.__name__}", (cls,), answer)


def force_form(network: Any, matrices: bool) -> Any:
    """The same network, whose factored layers no longer choose their form."""

    def forced(layer: Any) -> Any:
        if not hasattr(layer, "builds_matrices"):
            return layer
        fixed = object.__new__(forced_class(type(layer), matrices))
        for field in dataclasses.fields(layer):
            object.__setattr__(fixed, field.name, getattr(layer, field.name))
        return fixed

    return jax.tree.map(forced, network, is_leaf=lambda node: isinstance(node, RoleLinear))


def settings_of(name: str) -> Sharing:
    """A method's defaults; a forced form is written behind the name."""
    return method(name.partition(" ")[0])()  # pyright: ignore[reportCallIssue]


def make_network(name: str, part: str, setting: Setting, agents: int) -> Any:
    """A hidden layer or a whole network of one method, from the package's own constructors."""
    sharing = settings_of(name)
    key = jax.random.key(0)
    if part == "layer":
        identities = sharing.identities(agents, agents)
        network: Any = sharing.linear(
            setting.width, setting.width, identities=identities, key=key, kind="hidden", depth=1
        )
    else:
        build = recurrent_agent if setting.steps else mlp_actor
        network = build(
            sharing,
            inputs=setting.inputs,
            actions=setting.actions,
            width=setting.width,
            agents=agents,
            roles=agents,
            key=key,
        )
    return force_form(network, FORMS[name]) if name in FORMS else network


def make_program(name: str, part: str, setting: Setting, agents: int, penalties: bool) -> Callable[..., Any]:
    """``program(network, x, repetitions)``: that many training steps. A layer also passes a gradient to its input."""
    clusters = settings_of(name).initial_clusters(agents)

    def outputs(network: Any, x: jax.Array) -> jax.Array:
        if part == "layer":
            return network(x, clusters)
        role = jnp.broadcast_to(jnp.arange(agents), x.shape[:-1])
        return network.unroll(x, role) if setting.steps else network(x, role)

    def loss(moved: Any, fixed: Any, x: jax.Array) -> jax.Array:
        network = eqx.combine(moved[0], fixed)
        total = jnp.mean(outputs(network, moved[1] if part == "layer" else x) ** 2)
        return total + 0.01 * sum(network_regularisers(network).values()) if penalties else total

    def program(network: Any, x: jax.Array, repetitions: jax.Array) -> Any:
        moved, fixed = eqx.partition(network, eqx.is_inexact_array)
        start = (moved, x) if part == "layer" else (moved,)

        def step(_: Any, now: Any) -> Any:
            gradient = jax.grad(loss)(now, fixed, x)
            return jax.tree.map(lambda value, slope: value - 1e-6 * slope, now, gradient)

        return jax.lax.fori_loop(0, repetitions, step, start)

    return program


def compile_candidate(
    name: str, part: str, setting: Setting, agents: int, shape: tuple[int, ...], penalties: bool
) -> Candidate:
    """Compile from shapes alone: what a program will need is known before anything is allocated."""
    shapes = [jax.eval_shape(lambda n=n: make_network(name, part, setting, n)) for n in (agents, agents + 1)]
    features = setting.width if part == "layer" else setting.inputs
    x = jax.ShapeDtypeStruct((*shape, features), jnp.float32)
    program = jax.jit(make_program(name, part, setting, agents, penalties))
    compiled = program.lower(shapes[0], x, jax.ShapeDtypeStruct((), jnp.int32)).compile()
    now, more = footprint(shapes[0]), footprint(shapes[1])
    needs = compiled.memory_analysis()
    return Candidate(
        name=name,
        shapes=shapes[0],
        program=compiled,
        held=2 * now.bytes if needs is None else needs.argument_size_in_bytes + needs.output_size_in_bytes,
        temporary=4 * now.bytes if needs is None else needs.temp_size_in_bytes,
        numbers=more.parameters - now.parameters,
        bytes=more.bytes - now.bytes,
    )


def fill(shapes: Any) -> Any:
    """Arrays for shapes. Times do not depend on values, and drawing 1024 networks op by op would take minutes."""
    random = np.random.default_rng(0)

    def array(leaf: Any) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jnp.asarray(0.05 * random.standard_normal(leaf.shape, np.float32))
        return jnp.ones(leaf.shape, leaf.dtype) if leaf.dtype == bool else jnp.zeros(leaf.shape, leaf.dtype)

    return jax.tree.map(array, shapes)


def affordable(candidates: list[Candidate], limit: int) -> list[Candidate]:
    """Keep what fits beside the others, smallest first, and say what was left out."""
    kept: list[Candidate] = []
    for one in sorted(candidates, key=lambda one: (one.name != BASELINE, one.held + one.temporary)):
        needed = sum(other.held for other in [*kept, one]) + max(other.temporary for other in [*kept, one])
        if needed <= limit:
            kept.append(one)
        else:
            print(f"  skipped {one.name}: it would bring memory to {needed / 2**30:.1f} GiB of {limit / 2**30:.1f} GiB")
    return kept


def time_all(candidates: list[Candidate], x: jax.Array, rounds: int, target: float) -> dict[str, list[float]]:
    """Seconds for one step of every candidate in every round."""
    networks = {one.name: jax.block_until_ready(fill(one.shapes)) for one in candidates}

    def seconds(one: Candidate, repetitions: int) -> float:
        count = jnp.asarray(repetitions, jnp.int32)
        begin = time.perf_counter()
        jax.block_until_ready(one.program(networks[one.name], x, count))
        return (time.perf_counter() - begin) / repetitions

    for one in candidates:
        seconds(one, 1)  # warm-up
    baseline = next(one for one in candidates if one.name == BASELINE)
    repetitions = max(1, min(2000, round(target / seconds(baseline, 1))))
    times: dict[str, list[float]] = {one.name: [] for one in candidates}
    for turn in range(rounds):
        for one in candidates[turn % len(candidates) :] + candidates[: turn % len(candidates)]:
            times[one.name].append(seconds(one, repetitions))
    return times


def measure_case(part: str, setting: Setting, agents: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All methods on one part, one setting and one number of agents."""
    shape = setting.shape(agents, options.rows)
    print(f"{setting.name} {part}, {agents} agents, rows {shape}", flush=True)
    names = options.names
    candidates = [compile_candidate(name, part, setting, agents, shape, options.penalties) for name in names]
    candidates = affordable(candidates, options.limit)
    features = setting.width if part == "layer" else setting.inputs
    x = jax.random.normal(jax.random.key(1), (*shape, features))
    times = time_all(candidates, x, options.rounds, options.target)
    order = {name: place for place, name in enumerate(names)}
    return [
        {
            "setting": setting.name,
            "part": part,
            "agents": agents,
            "shape": list(shape),
            "method": one.name,
            "ms": 1e3 * statistics.median(times[one.name]),
            "ratio": statistics.median(np.divide(times[one.name], times[BASELINE]).tolist()),
            "temporary_bytes": one.temporary,
            "agent_numbers": one.numbers,
            "agent_bytes": one.bytes,
            "device": jax.devices()[0].device_kind,
        }
        for one in sorted(candidates, key=lambda one: order[one.name])
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    """One table: a line for each method, the ratio to FuPS+ID in every case."""
    lines = []
    for setting, part in dict.fromkeys((row["setting"], row["part"]) for row in rows):
        here = [row for row in rows if (row["setting"], row["part"]) == (setting, part)]
        teams = sorted({row["agents"] for row in here})
        base = {row["agents"]: row for row in here if row["method"] == BASELINE}
        heads = [f"{n} agents" for n in teams] + [f"temp MiB at {n}" for n in teams[-1:]]
        lines += [
            "",
            f"**{setting} {part}**: time relative to FuPS+ID ("
            + ", ".join(f"{n}: {base[n]['ms']:.3g} ms, rows {tuple(base[n]['shape'])}" for n in teams)
            + ")",
            "",
            "| method | " + " | ".join(heads) + " | numbers per agent | bytes per agent |",
            "|---|" + "---:|" * (len(heads) + 2),
        ]
        for name in dict.fromkeys(row["method"] for row in here):
            found = {row["agents"]: row for row in here if row["method"] == name}
            any_row = next(iter(found.values()))
            cells = [f"{found[n]['ratio']:.2f}" if n in found else "skipped" for n in teams]
            cells += [f"{found[n]['temporary_bytes'] / 2**20:,.1f}" if n in found else "–" for n in teams[-1:]]
            lines.append(
                f"| {name} | "
                + " | ".join([*cells, f"{any_row['agent_numbers']:,}", f"{any_row['agent_bytes']:,}"])
                + " |"
            )
    return "\n".join(lines)


def memory_limit() -> int:
    """Half of what the device can still give."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return (stats["bytes_limit"] - stats.get("bytes_in_use", 0)) // 2
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def main() -> None:
    """Measure, print a markdown table, and keep the rows where asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agents", type=int, nargs="+", default=[3, 16, 128, 1024])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="names from METHODS (default: all)")
    parser.add_argument("--parts", nargs="+", default=["layer", "network"], choices=["layer", "network"])
    known = [one.name for one in SETTINGS]
    parser.add_argument("--settings", nargs="+", default=known, choices=known)
    parser.add_argument("--quick", action="store_true", help="few rounds and small batches: a smoke test")
    parser.add_argument("--penalties", action="store_true", help="add each method's regularisers to the loss")
    parser.add_argument("--rounds", type=int, help="timed rounds (default 9, quick 3)")
    parser.add_argument("--rows", type=int, help="largest time * batch * agents (default 2^15 on CPU, 2^20 elsewhere)")
    parser.add_argument("--out", type=Path, help="write one JSON object for each measurement")
    options = parser.parse_args()
    on_cpu = jax.default_backend() == "cpu"
    options.rounds = options.rounds or (3 if options.quick else 9)
    options.rows = options.rows or (2**12 if options.quick else 2**15 if on_cpu else 2**20)
    options.target = 0.02 if options.quick else 0.05
    options.limit = memory_limit()
    chosen = list(dict.fromkeys([BASELINE, *(method(name).method for name in options.methods)]))
    options.names = [*chosen, *(FORMS if "prism" in chosen else ())]
    rows = []
    for setting in (one for one in SETTINGS if one.name in options.settings):
        for part in options.parts:
            for agents in options.agents:
                rows += measure_case(part, setting, agents, options)
                if options.out:  # after every case, so that an interrupted run keeps what it has
                    options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
