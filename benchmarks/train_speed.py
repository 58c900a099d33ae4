"""Training speed: environment steps/s, compile time and peak memory of every method, and the environment alone.

    python benchmarks/train_speed.py                                  # the paper's setting, one seed, this machine
    python benchmarks/train_speed.py --methods prism --seeds 1,5,20 --envs 1,8,16

    python benchmarks/train_speed.py --methods prism --against ../old  # this commit and another, in turn

Every row carries its ratio to the first row of its table, measured in the same run.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any, cast

import against
import jax
import jax.numpy as jnp

from prism_marl import envs
from prism_marl.experiment.presets import preset
from prism_marl.runs.machine import describe_machine
from prism_marl.training.build import make_trainer


def train_row(task: str, method: str, seeds: int, copies: int, seconds: float, overrides: list[str]) -> dict:
    """Compile, fill the replay until updates start, then time whole pieces of training."""
    experiment = preset(task, method).with_option("run.seeds", str(seeds)).with_option("run.envs", str(copies))
    for word in overrides:
        experiment = experiment.with_option(*word.split("=", 1))
    experiment.validate()
    trainer, settings = make_trainer(experiment), cast("Any", experiment.learner)
    started = time.perf_counter()
    state = jax.block_until_ready(jax.jit(trainer.init)())
    advance = jax.jit(lambda state, goal: trainer.advance(state, goal, learn=True), donate_argnums=0)
    advance = advance.lower(state, jnp.int32(0)).compile()
    compile_seconds = time.perf_counter() - started

    horizon, batch = trainer.learner.spec.horizon, settings.batch
    piece = horizon * max(batch, 2 * copies)
    goal = trainer.warmup + 2 * piece
    if trainer.warmup:
        state = jax.jit(lambda state: trainer.advance(state, trainer.warmup, learn=False), donate_argnums=0)(state)
    state = jax.block_until_ready(advance(state, jnp.int32(goal)))  # past the first updates
    rates = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(rates) < 3:
        before, iterations = int(jnp.sum(state.seeds.steps)), int(state.clock.iteration)
        goal += piece
        started = time.perf_counter()
        state = jax.block_until_ready(advance(state, jnp.int32(goal)))
        spent = time.perf_counter() - started
        rates.append(
            ((int(jnp.sum(state.seeds.steps)) - before) / spent, spent / (int(state.clock.iteration) - iterations))
        )
    rates.sort()
    steps_per_second, iteration = rates[len(rates) // 2]
    return {
        "table": "train",
        "task": task,
        "method": method,
        "seeds": seeds,
        "envs": copies,
        "steps_per_second": round(steps_per_second),
        "iteration_ms": round(1000 * iteration, 3),
        "compile_seconds": round(compile_seconds, 1),
        "peak_MiB": round(peak_bytes() / 2**20),
    }


def env_row(task: str, copies: int, seconds: float) -> dict:
    """Whole episodes with random actions, no network."""
    env = envs.make(task)
    spec = env.spec

    @jax.jit
    def episode(key):
        key_reset, key_steps = jax.random.split(key)
        state, _ = jax.vmap(env.reset)(jax.random.split(key_reset, copies))

        def step(state, key):
            key_action, key_env = jax.random.split(key)
            action = jax.random.randint(key_action, (copies, spec.agents), 0, spec.actions)
            state, out = jax.vmap(env.step)(jax.random.split(key_env, copies), state, action)
            return state, (out.reward.sum(), out.obs.local.sum())

        return jax.lax.scan(step, state, jax.random.split(key_steps, spec.horizon))[1]

    key = jax.random.key(0)
    jax.block_until_ready(episode(key))
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        started = time.perf_counter()
        jax.block_until_ready(episode(key))
        times.append(time.perf_counter() - started)
    rate = copies * spec.horizon / sorted(times)[len(times) // 2]
    return {"table": "environment", "task": task, "copies": copies, "steps_per_second": round(rate)}


def peak_bytes() -> int:
    """Peak memory of the device, or of the process where the device does not tell."""
    stats = jax.devices()[0].memory_stats()
    return stats["peak_bytes_in_use"] if stats else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def show(rows: list[dict], columns: list[str]) -> None:
    base = rows[0]["steps_per_second"]
    print("\n| " + " | ".join([*columns, "ratio"]) + " |\n|" + "---|" * (len(columns) + 1))
    for row in rows:
        cells = [f"{row[c]:,}" if isinstance(row[c], int | float) else str(row[c]) for c in columns]
        print("| " + " | ".join([*cells, f"{row['steps_per_second'] / base:.2f}"]) + " |", flush=True)


def compare(found: argparse.Namespace) -> None:
    """Method by method, since each has settings of its own."""
    words = against.words_without(["--against", "--rounds", "--methods", "--copies", "--out"])
    for method in filter(None, found.methods.split(",")):
        settings = against.different_settings(found.against, found.task, method, but=("run.seeds", "run.envs"))
        both = [*words, "--methods", method, "--copies", ""]
        against.compare(Path(__file__), found.against, both, found.rounds, settings=settings)
    if found.copies:
        both = [*words, "--methods", "", "--copies", found.copies]
        against.compare(Path(__file__), found.against, both, found.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="lbf/10x10-3p-3f")
    parser.add_argument("--methods", default="fups_id,fups,nops,fups_id_svd,snp,kaleidoscope,prism")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--envs", default="1")
    parser.add_argument("--copies", default="1,16,256,4096")
    parser.add_argument("--seconds", type=float, default=5.0, help="measuring time for each row")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="for example learner.batch=64"
    )
    parser.add_argument("--out", type=Path, help="write rows as JSON lines")
    against.add_options(parser)
    found = parser.parse_args()
    if found.against:
        compare(found)
        return

    rows = []
    for copies in map(int, filter(None, found.copies.split(","))):
        rows.append(env_row(found.task, copies, found.seconds / 3))
    if rows:
        show(rows, ["task", "copies", "steps_per_second"])
    trained = [
        train_row(found.task, method, seeds, copies, found.seconds, found.set)
        for method in filter(None, found.methods.split(","))
        for seeds in map(int, found.seeds.split(","))
        for copies in map(int, found.envs.split(","))
    ]
    if trained:
        columns = ["method", "seeds", "envs", "steps_per_second", "iteration_ms", "compile_seconds", "peak_MiB"]
        show(trained, columns)
    if found.out:
        machine = describe_machine()
        found.out.write_text("".join(json.dumps(row | {"machine": machine}) + "\n" for row in rows + trained))


if __name__ == "__main__":
    main()
