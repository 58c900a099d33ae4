"""Battles alone: environment steps/s with random legal actions, whole episodes, for several numbers of copies.

    python benchmarks/battle_speed.py
    python benchmarks/battle_speed.py --tasks skirmish/terran_5_vs_5 --copies 16,256,4096,16384
    python benchmarks/battle_speed.py --against ../old                 # this commit and another, in turn

Where JaxMARL is installed, its SMAX is measured in the same run, and every row carries its ratio to SMAX at the same
number of copies. Copies that finish go on fighting: a step costs the same before and after the end.
"""

import argparse
import json
import time
from pathlib import Path

import against
import jax
import jax.numpy as jnp

from prism_marl import envs
from prism_marl.errors import UserError
from prism_marl.runs.machine import describe_machine

SMAX = "jaxmarl/smax-smacv2_5_units"


def row(task: str, copies: int, steps: int, seconds: float) -> dict:
    """Compile, then time blocks of steps until the time is up; the median block counts."""
    env = envs.make(task)

    @jax.jit
    def block(carry, key):
        def step(carry, key):
            state, avail = carry
            key_act, key_env = jax.random.split(key)
            action = jnp.argmax(jnp.where(avail, jax.random.uniform(key_act, avail.shape), -1.0), axis=-1)
            state, out = jax.vmap(env.step)(jax.random.split(key_env, copies), state, action)
            # sums keep the compiler from dropping what nobody reads
            return (state, out.obs.avail), (out.reward.sum(), out.obs.local.sum(), out.obs.state.sum())

        return jax.lax.scan(step, carry, jax.random.split(key, steps))

    started = time.perf_counter()
    state, obs = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), copies))
    carry, _ = jax.block_until_ready(block((state, obs.avail), jax.random.key(1)))
    compile_seconds = time.perf_counter() - started
    rates = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(rates) < 3:
        started = time.perf_counter()
        carry, _ = jax.block_until_ready(block(carry, jax.random.key(len(rates))))
        rates.append(copies * steps / (time.perf_counter() - started))
    rates.sort()
    return {
        "task": task,
        "copies": copies,
        "steps_per_second": round(rates[len(rates) // 2]),
        "best": round(rates[-1]),
        "compile_seconds": round(compile_seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    races = ",".join(f"skirmish/{race}_5_vs_5" for race in ("terran", "protoss", "zerg"))
    parser.add_argument("--tasks", default=races)
    parser.add_argument("--copies", default="16,256,4096,16384")
    parser.add_argument("--steps", type=int, default=50, help="steps in one block")
    parser.add_argument("--seconds", type=float, default=5.0, help="to measure each row")
    against.add_options(parser)
    found = parser.parse_args()
    if found.against:
        words = against.words_without(["--against", "--rounds"])
        against.compare(Path(__file__), found.against, words, found.rounds)
        return
    print(json.dumps(describe_machine()))
    tasks = found.tasks.split(",")
    try:
        envs.make(SMAX)
        tasks = [SMAX, *tasks]
    except UserError as error:
        print(json.dumps({"without": SMAX, "why": str(error)}))
    for copies in (int(number) for number in found.copies.split(",")):
        base = None
        for task in tasks:
            measured = row(task, copies, found.steps, found.seconds)
            if task == SMAX:
                base = measured["steps_per_second"]
            elif base:
                measured["to_smax"] = round(measured["steps_per_second"] / base, 2)
            print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
