"""Physics speed: our rows against `mujoco.rollout` on the same threads, two threads against one, and a gymnasium loop.

    python benchmarks/physics.py                                    # five robots, 64 rows, 1 and 2 threads
    python benchmarks/physics.py --tasks ant-4x2 --rows 50 --threads 1,4,16 --out rows.jsonl

All ways of one task take turns in short pieces of the same run, so that a busy machine is busy for all of them; a rate
is the median over the pieces. `rollout` computes states alone and forgets the solver's last solution between steps;
ours also observes, rewards and ends episodes. Rows start again when they fall, in all of them. `rollout` gets the model
file and the engine's clocks as anybody does who calls it; `rollout, lean` gets our model and no clocks.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mujoco import rollout
from originals import original

from prism_marl.envs.mamujoco import make_mamujoco
from prism_marl.envs.mamujoco.engine import load_engine, load_model, load_raw_model
from prism_marl.envs.mamujoco.robots import Robots
from prism_marl.envs.mamujoco.rules import RULES
from prism_marl.envs.mamujoco.stepping import workspace
from prism_marl.envs.mamujoco.tasks import find_task
from prism_marl.runs.machine import describe_machine

mujoco = load_engine()
FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS
Piece = Callable[[int], None]  # play so many steps of all rows


def ours(variant: str, rows: int, threads: int) -> Piece:
    """What training uses, with new episodes for fallen rows."""
    env = make_mamujoco(variant, rows, threads)
    assert isinstance(env, Robots)
    rng = np.random.default_rng(0)

    def play(steps: int) -> None:
        workspace(mujoco, env.model)  # the clocks belong to the process, and the way before may have used them
        for _ in range(steps):
            action = rng.uniform(-1, 1, (rows, env.spec.agents, env.spec.actions)).astype(np.float32)
            step = env.step(action)
            over = np.flatnonzero(step.terminated | step.truncated)
            if over.size:
                env.reset(over, rng.integers(0, 2**31, over.size))

    return play


def engine(variant: str, rows: int, threads: int, lean: bool) -> Piece:
    """The engine's own batch, one step of the task at a time, from states that start as ours do."""
    task = find_task(variant)
    model, frames = (load_model if lean else load_raw_model)(mujoco, task), RULES[task.robot].frames
    datas = [mujoco.MjData(model) for _ in range(threads)]
    states = np.zeros((rows, mujoco.mj_stateSize(model, FULL)))
    rules, rng = RULES[find_task(variant).robot], np.random.default_rng(0)

    def fresh(row: Any) -> None:
        mujoco.mj_resetData(model, datas[0])
        datas[0].qpos[:], datas[0].qvel[:] = rules.start(int(rng.integers(2**31)), datas[0].qpos, datas[0].qvel)
        mujoco.mj_getState(model, datas[0], states[row], FULL)

    for row in range(rows):
        fresh(row)
    pool = rollout.Rollout(nthread=threads if threads > 1 else 0)
    path = np.zeros((rows, frames, states.shape[1]))
    models = [model] * rows
    place = slice(1, 1 + model.nq), slice(1 + model.nq, 1 + model.nq + model.nv)

    def play(steps: int) -> None:
        workspace(mujoco, model) if lean else mujoco.MjData(model)  # without its clocks, or with
        for _ in range(steps):
            action = np.repeat(rng.uniform(-1, 1, (rows, 1, model.nu)), frames, axis=1)
            pool.rollout(models, datas, states, action, skip_checks=True, nstep=frames, state=path)
            states[:] = path[:, -1]
            if rules.healthy:  # the same mix of standing and falling robots as ours: contacts cost time
                for row in np.flatnonzero(~rules.healthy(states[:, place[0]], states[:, place[1]])):
                    fresh(row)

    return play


def loop(variant: str, rows: int) -> Piece | None:
    """Gymnasium's environments, one after the other."""
    made: list[Any] = [original(variant) for _ in range(rows)]
    if None in made:
        return None
    for seed, env in enumerate(made):
        env.reset(seed=seed)
    rng, size = np.random.default_rng(0), made[0].action_space.shape
    model = load_raw_model(mujoco, find_task(variant))

    def play(steps: int) -> None:
        mujoco.MjData(model)  # with clocks, as they come
        for _ in range(steps):
            for env, action in zip(made, rng.uniform(-1, 1, (rows, *(size or ()))).astype(np.float32), strict=True):
                _, _, fallen, cut, _ = env.step(action)
                if fallen or cut:
                    env.reset()

    return play


def measure(variant: str, rows: int, threads: list[int], seconds: float) -> list[dict]:
    """Median rates of all ways, which take turns."""
    ways: dict[tuple[str, int], Piece] = {}
    for count in threads:
        ways["ours", count] = ours(variant, rows, count)
        ways["rollout", count] = engine(variant, rows, count, lean=False)
        ways["rollout, lean", count] = engine(variant, rows, count, lean=True)
    if (plain := loop(variant, rows)) is not None:
        ways["gymnasium loop", 1] = plain
    pieces: dict[tuple[str, int], int] = {}
    rates: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    for way, play in ways.items():
        started = time.perf_counter()
        play(20)  # past the start, where nothing has touched the ground yet
        pieces[way] = max(2, round(20 * 0.15 / (time.perf_counter() - started)))
    until = time.perf_counter() + seconds * len(ways)
    while time.perf_counter() < until:
        for way, play in ways.items():
            started = time.perf_counter()
            play(pieces[way])
            rates[way].append(rows * pieces[way] / (time.perf_counter() - started))
    return [
        {
            "task": variant,
            "way": way,
            "threads": count,
            "rows": rows,
            "steps_per_second": round(statistics.median(found)),
        }
        for (way, count), found in rates.items()
    ]


def ratios(rows: list[dict]) -> dict[str, float]:
    """What the targets are about."""
    rate = {(row["way"], row["threads"]): row["steps_per_second"] for row in rows}
    counts = sorted(count for way, count in rate if way == "ours")
    out = {f"ours / rollout, {n} threads": rate["ours", n] / rate["rollout", n] for n in counts}
    out |= {f"ours / rollout, lean, {n} threads": rate["ours", n] / rate["rollout, lean", n] for n in counts}
    out |= {f"{n} threads / {counts[0]}": rate["ours", n] / rate["ours", counts[0]] for n in counts[1:]}
    out |= {f"rollout {n} threads / {counts[0]}": rate["rollout", n] / rate["rollout", counts[0]] for n in counts[1:]}
    if ("gymnasium loop", 1) in rate:
        out |= {f"ours, {n} threads / gymnasium loop": rate["ours", n] / rate["gymnasium loop", 1] for n in counts}
    return {name: round(value, 3) for name, value in out.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="halfcheetah-2x3,ant-4x2,hopper-3x1,walker2d-2x3,swimmer-10x2")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0, help="measuring time for each way")
    parser.add_argument("--out", type=Path, help="write rows as JSON lines")
    found = parser.parse_args()
    threads = [int(word) for word in found.threads.split(",")]
    kept = [{"machine": describe_machine(), "mujoco": mujoco.__version__}]
    print("| task | way | threads | steps/s |\n|---|---|---|---|")
    for variant in found.tasks.split(","):
        rows = measure(variant, found.rows, threads, found.seconds)
        for row in rows:
            print(f"| {row['task']} | {row['way']} | {row['threads']} | {row['steps_per_second']:,} |", flush=True)
        held = ratios(rows)
        print("\n".join(f"  {name}: {value}" for name, value in held.items()), flush=True)
        kept += [*rows, {"task": variant, "ratios": held}]
    if found.out:
        found.out.parent.mkdir(parents=True, exist_ok=True)
        found.out.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")


if __name__ == "__main__":
    main()
