"""What 2 to 1024 agents really cost: counted parameters beside measured memory and time of MATD3's updates.

    python benchmarks/scaling.py --out rows.jsonl                                # 2, 16, 128 and 1024 agents
    python benchmarks/scaling.py --agents 2 16 128 --batch 100 --updates 20      # a CPU
    python benchmarks/scaling.py --draw rows.jsonl --picture scaling.png

Sizes are those of mamujoco/swimmer-<agents>x2. Up to 16 agents the transitions come from physics where MuJoCo is
installed, otherwise they are random numbers of the same shapes; every row says which. A row is measured in a process of
its own, so that its peak is its own and running out of memory ends one row, not all. What would not fit is refused
before it is allocated: the sizes of the state are known from shapes, those of the program from compiling it.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prism_marl import envs
from prism_marl.buffers.nstep import NStep, Transition, distinct
from prism_marl.buffers.ring import Ring, empty_ring
from prism_marl.collect.host import HostCollector
from prism_marl.errors import UserError
from prism_marl.experiment.presets import preset
from prism_marl.learners.base import Clock
from prism_marl.learners.matd3 import MATD3Learner
from prism_marl.learners.matd3_updates import MATD3State
from prism_marl.runs.machine import configure_jax, describe_machine, free_bytes
from prism_marl.sharing.footprint import footprint

METHODS = ("prism", "fups_id", "snp", "kaleidoscope")
ENVS = 10  # environments side by side, as in the preset
BATCHES = 4  # sizes of a batch that the ring holds
DRAWN = 16  # different batches, used in turn
PHYSICS = 16  # most agents whose transitions come from the engine: beyond it a step takes milliseconds


def learner_of(method: str, agents: int, options: argparse.Namespace) -> MATD3Learner:
    """The preset's learner; only the batch and the width can be made smaller."""
    experiment = preset(f"mamujoco/swimmer-{agents}x2", method)
    for field, value in (("learner.batch", options.batch), ("network.width", options.width)):
        experiment = experiment.with_option(field, str(value))
    spec = envs.describe(experiment.task)
    return experiment.learner.learner(experiment.sharing, spec, width=experiment.network.width, rows=ENVS)  # pyright: ignore


def ring_size(learner: MATD3Learner) -> int:
    return -(-BATCHES * learner.settings.batch // ENVS) * ENVS


def physics(learner: MATD3Learner) -> Transition | None:
    """Random actions of real robots; None where there is no engine or it would take too long."""
    if learner.spec.agents > PHYSICS:
        return None
    try:
        collector = HostCollector(envs.rows_builder(learner.spec.name), range(1), ENVS)
        whole = replace(learner, settings=replace(learner.settings, train_interval=ring_size(learner) // ENVS))
        collector.reset(whole, None, None)  # pyright: ignore[reportArgumentType]
    except UserError:
        return None
    clock: Any = Clock(np.int32(0), np.int32(0), ())  # pyright: ignore[reportArgumentType]
    batch = collector.collect(whole, None, (), None, None, clock, "random")[1]  # pyright: ignore[reportArgumentType]
    collector.close()
    ring = empty_ring(learner.views.stored(), ring_size(learner))
    return whole.add(ring, jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), batch)).storage


def synthetic(learner: MATD3Learner) -> Transition:
    """Random numbers in the shapes of the task; one step in a thousand ends an episode."""
    rng = np.random.default_rng(0)

    def numbers(leaf: Any) -> Any:
        shape = (ring_size(learner), *leaf.shape)
        if leaf.dtype == bool:
            return rng.random(shape) < 0.001
        return rng.uniform(-1, 1, shape).astype(leaf.dtype)

    return jax.tree.map(numbers, learner.views.stored())


def make_program(learner: MATD3Learner) -> Callable[..., Any]:
    """``program(state, ring, chains, key, first, count)``: so many critic updates and the actor updates with them."""

    def program(state: MATD3State, ring: Any, chains: NStep, key: Any, first: Any, count: Any) -> Any:
        def one(number: Any, carry: Any) -> Any:
            batch = learner.read(ring, jax.tree.map(lambda leaf: leaf[number % DRAWN], chains))
            state, metrics = learner.update_critics(carry[0], batch, jax.random.fold_in(key, number))
            state = jax.lax.cond(
                (number + 1) % learner.settings.policy_freq == 0,
                lambda state: learner.update_actors(state, batch, number)[0],
                lambda state: state,
                state,
            )
            return state, metrics["critic_loss"]

        return jax.lax.fori_loop(first, first + count, one, (state, jnp.zeros(())))

    return program


def nbytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype"))


def measure(method: str, agents: int, options: argparse.Namespace) -> dict[str, Any]:
    """One row: sizes from shapes, then what the program will need, then the updates themselves."""
    learner = learner_of(method, agents, options)
    shapes = jax.eval_shape(learner.init, jax.random.key(0))
    actor = shapes.online.agent
    size, trained = footprint(actor), eqx.filter(actor, lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact))
    row: dict[str, Any] = {
        "method": method,
        "agents": agents,
        "task": learner.spec.name,
        "batch": learner.settings.batch,
        "width": learner.width,
        "parameters": size.parameters,
        "trainable": sum(leaf.size for leaf in jax.tree.leaves(trained)),
        "private_per_agent": size.private / agents,
        "overhead": round(size.ratio, 6),
        "actor_bytes": size.bytes,
        "critic_parameters": footprint(shapes.online.critics).parameters,
    }
    limit = options.memory * 2**30 if options.memory else _limit()
    ring = jax.eval_shape(lambda: empty_ring(learner.views.stored(), ring_size(learner)))
    held = nbytes(shapes) + nbytes(ring)
    if held + nbytes(trained) > limit:  # no program does with less than this and one gradient
        return row | _refusal(held, nbytes(trained), limit, "at least ")
    started = time.perf_counter()
    chains = jax.eval_shape(lambda: _chains(learner, empty_ring(learner.views.stored(), ring_size(learner))))
    key, number = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((), jnp.int32)
    lowered = jax.jit(make_program(learner), donate_argnums=0).lower(shapes, ring, chains, key, number, number)
    program = lowered.compile()
    row["compile_s"] = round(time.perf_counter() - started, 1)
    needs: Any = program.memory_analysis()
    temporary = int(needs.temp_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes)
    row |= {"temporary_bytes": temporary, "needed_bytes": held + temporary, "free_bytes": int(limit)}
    if held + temporary > limit:
        return row | _refusal(held, temporary, limit, "")
    return row | train(learner, program, options)


def _limit() -> float:
    """Most of what is free: an accelerator is ours alone, a host is not."""
    free = free_bytes() or 2**40
    return free * (0.8 if jax.default_backend() == "cpu" else 0.97)


def _refusal(held: int, temporary: int, limit: float, least: str) -> dict[str, Any]:
    gib = [f"{size / 2**30:.2f} GiB" for size in (held + temporary, held, temporary, limit)]
    why = (
        f"one update needs {least}{gib[0]} ({gib[1]} of state and transitions, {gib[2]} besides) and {gib[3]} may be "
        "used: take fewer agents, a smaller --width or --batch, or a method that owns less per agent"
    )
    return {"needed_bytes": held + temporary, "free_bytes": int(limit), "refused": why}


def _chains(learner: MATD3Learner, ring: Ring[Transition]) -> NStep:
    places = distinct(jax.random.key(1), ring.count, (DRAWN, learner.settings.batch))
    return learner.chains(ring, places)


def train(learner: MATD3Learner, program: Any, options: argparse.Namespace) -> dict[str, Any]:
    """So many updates, or as many as the time allows, in stretches of which each gives one time."""
    found = physics(learner)
    block = synthetic(learner) if found is None else found
    state = jax.jit(learner.init)(jax.random.key(0))
    ring = empty_ring(learner.views.stored(), ring_size(learner)).add(jax.device_put(block))
    chains = jax.jit(lambda ring: _chains(learner, ring))(ring)
    row = {"transitions": "synthetic" if found is None else "physics", "state_bytes": nbytes(state)}
    every, done, times = learner.settings.policy_freq, 0, []
    key, count, loss, spent = jax.random.key(2), every, jnp.zeros(()), 0.0
    while not times or (done < options.updates and spent < options.seconds):
        started = time.perf_counter()
        arguments = (jnp.int32(done), jnp.int32(count))
        state, loss = jax.block_until_ready(program(state, ring, chains, key, *arguments))
        taken = time.perf_counter() - started
        if done:  # the first stretch warms up
            times.append(taken / count)
            spent += taken
        done += count
        stretch = min(0.5 / (taken / count), options.updates / 8, options.updates - done)
        count = max(every, int(stretch) // every * every)
    return row | {
        "updates": done,
        "update_ms": round(1000 * float(np.median(times)), 3),
        "fastest_ms": round(1000 * min(times), 3),
        "stretches": len(times),
        "critic_loss": float(f"{float(loss):.5g}"),
        **_peak(),
    }


def _peak() -> dict[str, Any]:
    """The most memory at any time, initialisation included: of the device where it tells, else of the process."""
    stats = jax.devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return {"peak_bytes": stats["peak_bytes_in_use"], "peak_of": "device"}
    return {"peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "peak_of": "process"}


def apart(method: str, agents: int, words: Sequence[str]) -> dict[str, Any]:
    """The row from a process of its own; if the system kills that, the row says so."""
    command = [sys.executable, __file__, *words, "--methods", method, "--agents", str(agents), "--here"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if lines:
        return json.loads(lines[-1])
    last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
    return {"method": method, "agents": agents, "refused": f"ended with code {done.returncode}: {last[:300]}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+", default=[2, 16, 128, 1024])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--updates", type=int, default=300, help="critic updates of every row")
    parser.add_argument("--seconds", type=float, default=120.0, help="no further updates after so long in one row")
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--width", type=int, default=256, help="hidden units of the actors")
    parser.add_argument("--memory", type=float, help="GiB that may be used (default: most of what is free)")
    parser.add_argument("--here", action="store_true", help="measure in this process")
    parser.add_argument("--out", type=Path, help="write rows as JSON lines")
    parser.add_argument("--draw", type=Path, metavar="ROWS", help="only draw rows that are there")
    parser.add_argument("--picture", type=Path, default=Path("scaling.png"))
    found = parser.parse_args()
    if found.draw:
        from scaling_figure import figure  # matplotlib only where something is drawn

        from prism_marl.paper.scaling import write_figure

        write_figure(figure([json.loads(line) for line in found.draw.read_text().splitlines()]), found.picture)
        return
    configure_jax()
    words = [f"--{name}={value}" for name in ("updates", "seconds", "batch", "width", "memory")
             for value in [getattr(found, name)] if value is not None]  # fmt: skip
    rows: list[dict[str, Any]] = []
    for agents in found.agents:
        for method in found.methods:
            row = measure(method, agents, found) if found.here else apart(method, agents, words)
            if found.here:
                row |= {"machine": describe_machine()}
            print(json.dumps(row), flush=True)
            rows.append(row)
            if found.out:  # after every row, so that an interrupted run keeps what it has
                found.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
