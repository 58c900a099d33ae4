"""Speed of MATD3: one update for several seeds, the whole loop with what takes its time, and a plain loop beside it.

    python benchmarks/matd3_speed.py --task mamujoco/halfcheetah-2x3                    # this machine
    python benchmarks/matd3_speed.py --task mamujoco/ant-4x2 --seeds 1,5 --parts update  # needs no physics engine
    python benchmarks/matd3_speed.py --parts loop,plain --set learner.overlap=true
    python benchmarks/matd3_speed.py --parts update,loop --against ../old    # this commit and another

``update``: critic and actor updates of a compiled interval, on random transitions. ``loop``: the trainer as it is, with
clocks around physics, acting, copies and learning. ``plain``: gymnasium's environments one after the other, a compiled
call for every action, a ring in numpy, a compiled call for every update: the same learner without the loop around it.
"""

import argparse
import functools
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line has it

import against
import jax
import jax.numpy as jnp
import numpy as np

from prism_marl import envs
from prism_marl.collect.base import Summary
from prism_marl.collect.host import OWN
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.learners.log import GIVEN
from prism_marl.learners.matd3 import MATD3Learner
from prism_marl.learners.matd3_updates import Batch
from prism_marl.learners.numpy_actors import NumpyActors
from prism_marl.runs.machine import configure_jax, describe_machine
from prism_marl.sharing.host_svd import call_now
from prism_marl.training import host_loop
from prism_marl.training.build import make_trainer
from prism_marl.training.trainer import Trainer


def experiment_of(task: str, method: str, seeds: int, changes: list[str]) -> Experiment:
    """The task's preset, with a ring that any machine can hold and a short warm-up."""
    experiment = preset(task, method)
    smaller = ["learner.buffer=200000", "learner.warmup=2000", f"run.seeds={seeds}"]
    for word in [*smaller, *changes]:
        experiment = experiment.with_option(*word.split("=", 1))
    experiment.validate()
    return experiment


def learner_of(experiment: Experiment) -> MATD3Learner:
    spec, run = envs.describe(experiment.task), experiment.run
    return experiment.learner.learner(experiment.sharing, spec, width=experiment.network.width, rows=run.envs)  # pyright: ignore


def update_row(experiment: Experiment, seconds: float) -> dict[str, Any]:
    """Compiled intervals on random transitions: time for one critic update with its share of actor updates."""
    trainer, rng, run = make_trainer(experiment), np.random.default_rng(0), experiment.run
    learner: Any = trainer.learner

    def random(leaf: Any) -> Any:
        shape = (run.seeds, leaf.shape[0], run.envs, *leaf.shape[1:])
        if leaf.dtype == bool:
            return jnp.asarray(rng.random(shape) < 0.001)
        return jnp.asarray(rng.uniform(-1, 1, shape), leaf.dtype)

    started = time.perf_counter()
    seeds, clock = _fresh(trainer)
    steps = jnp.full(run.seeds, learner.interval, jnp.int32)
    summary = Summary(steps, dict.fromkeys(GIVEN, jnp.ones(run.seeds, bool)))
    given = ((), jax.tree.map(random, learner.template()), summary)

    def follow(learns: bool, seeds: Any, clock: Any, *given: Any) -> Any:
        seeds, clock = trainer.absorb(trainer.opened(seeds), clock, *given, learn=learns)
        return trainer.closed(seeds), clock

    learn, store = (jax.jit(functools.partial(follow, learns), donate_argnums=(0, 1)) for learns in (True, False))
    learn, policies = learn.lower(seeds, clock, *given).compile(), jax.jit(trainer.policies)
    compiled = time.perf_counter() - started
    while int(clock.iteration) * learner.interval < 20 * learner.settings.batch:
        seeds, clock = store(seeds, clock, *given)
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        started = time.perf_counter()
        seeds, clock = learn(seeds, clock, *given)
        jax.block_until_ready((seeds, clock, policies(seeds.state)))
        times.append(time.perf_counter() - started)
    number = learner.settings.updates
    row = _head("update", experiment)
    return row | {
        "update_ms": _ms(times, number),
        "fastest_ms": _ms([min(times)], number),
        "compile_s": round(compiled, 1),
    }


def _fresh(trainer: Trainer) -> Any:
    """Seeds and clock at the start, without the environment that ``Trainer.init`` builds."""
    return jax.jit(lambda: (trainer._fresh(call_now), trainer._counters()[0]))()


class Clock:
    """Seconds by name, and a wrapper that adds the time of a call to one of them."""

    def __init__(self):
        self.spent: dict[str, float] = defaultdict(float)

    def around(self, name: str, function: Callable[..., Any], wait: bool = False) -> Callable[..., Any]:
        def timed(*arguments, **words):
            started = time.perf_counter()
            result = function(*arguments, **words)
            if wait:
                jax.block_until_ready(result)
            self.spent[name] += time.perf_counter() - started
            return result

        return timed


class TimedEnv:
    """An environment under a clock."""

    def __init__(self, env: Any, clock: Clock):
        self.env, self.spec, self.number = env, env.spec, env.number
        for name in ("reset", "observe", "step", "begin", "finish", "observe_rows"):
            if hasattr(env, name):  # begun in parts: what is left is the time spent waiting for it
                setattr(self, name, clock.around("physics", getattr(env, name)))
        for name in ("snapshot", "restore", "scene", "close"):
            setattr(self, name, getattr(env, name))


def loop_row(experiment: Experiment, seconds: float) -> dict[str, Any]:
    """The trainer itself. Without overlap every part waits for the one before, so the parts add up."""
    trainer, clock = make_trainer(experiment), Clock()
    collector: Any = trainer.collector
    if collector.compiled:
        raise SystemExit(f"{experiment.task} is compiled: benchmarks/train_speed.py measures it")
    overlap, interval = trainer.learner.collection.overlap, trainer.learner.interval  # pyright: ignore
    state: Any = trainer.init()
    collector._pool[OWN] = TimedEnv(collector.env, clock)
    state = trainer.prepare(trainer.advance(state, trainer.warmup, learn=False))
    started = time.perf_counter()
    trainer.warm("learn", state)
    compiled = time.perf_counter() - started
    programs = trainer._host._programs
    programs[True] = clock.around("learning", programs[True], wait=True)
    originals = (host_loop.copied, NumpyActors.__call__)
    host_loop.copied = clock.around("copies", originals[0])
    NumpyActors.__call__ = clock.around("acting", originals[1])
    goal, rates = trainer.warmup + 2 * interval, []
    state = jax.block_until_ready(trainer.advance(state, goal, learn=True))
    clock.spent.clear()
    whole = time.perf_counter()
    while time.perf_counter() < whole + seconds or len(rates) < 3:
        goal += interval if not overlap else 5 * interval
        started, before = time.perf_counter(), int(state.clock.iteration)
        state = jax.block_until_ready(trainer.advance(state, goal, learn=True))
        steps = (int(state.clock.iteration) - before) * interval * experiment.run.seeds
        rates.append(steps / (time.perf_counter() - started))
    whole = time.perf_counter() - whole
    host_loop.copied, NumpyActors.__call__ = originals
    collector._pool[OWN].close()
    shares = {name: round(spent / whole, 3) for name, spent in sorted(clock.spent.items())}
    if not overlap:
        shares["rest"] = round(1 - sum(shares.values()), 3)
    row = _head("loop", experiment) | {"overlap": overlap, "compile_s": round(compiled, 1)}
    return row | {"steps_per_second": round(sorted(rates)[len(rates) // 2], 1), "shares": shares}


def _plain_env(task: str) -> Any:
    """Gymnasium's environment, or one row of ours where it has none."""
    family, _, variant = task.partition("/")
    if family == "mamujoco":
        from originals import OriginalRow, original  # needs the physics engine, which updates alone do not

        if (env := original(variant)) is not None:
            return OriginalRow(env, envs.describe(task))
    return envs.make_rows(task, 1, threads=1)


def plain_row(experiment: Experiment, seconds: float) -> dict[str, Any]:
    """One seed, written as one would write it first."""
    learner, number = learner_of(experiment), experiment.run.envs
    settings, rng = learner.settings, np.random.default_rng(0)
    state = jax.jit(learner.init)(jax.random.key(0))
    rows = [_plain_env(experiment.task) for _ in range(number)]
    act = jax.jit(learner.actions)
    critics, actors = jax.jit(learner.update_critics), jax.jit(learner.update_actors)
    held = learner.views.stored()
    ring: Any = jax.tree.map(lambda leaf: np.zeros((settings.buffer, *leaf.shape), leaf.dtype), held)
    count, updates, times = 0, 0, []

    def step_all(random: bool) -> None:
        nonlocal count
        for index, env in enumerate(rows):
            obs: Any = env.observe()
            local = obs.local[:, :0] if learner.spec.shared_observation else obs.local
            if random:
                action = rng.uniform(-1, 1, (1, learner.spec.agents, learner.spec.actions))
            else:
                chosen = np.asarray(act(state.online.agent, local, obs.state))
                action = np.clip(chosen + settings.explore * rng.standard_normal(chosen.shape), -1, 1)
            step: Any = env.step(action.astype(np.float32))
            place, over = (count + index) % settings.buffer, step.terminated | step.truncated
            after = step.obs.local[:, :0] if learner.spec.shared_observation else step.obs.local
            parts = (local, obs.state, action, step.reward, over, step.terminated, after, step.obs.state)
            for array, value in zip(ring, parts, strict=True):
                array[place] = value[0]
            if over[0]:
                env.reset(np.zeros(1, int), rng.integers(0, 2**31, 1))
        count += number

    def batch_of() -> Batch:
        filled = min(count, settings.buffer)
        start = rng.choice(filled, settings.batch, replace=False)
        reward, discount = np.zeros(len(start), np.float32), np.ones(len(start), np.float32)
        last, running = start.copy(), np.ones(len(start), bool)
        for _ in range(settings.n_step):
            reward += running * discount * ring.reward[last]
            discount *= np.where(running, settings.gamma, 1)
            newest = (count - 1 - last) % settings.buffer < number
            running &= ~(ring.done[last] | newest)
            last = np.where(running, (last + number) % settings.buffer, last)
        discount *= ~ring.terminated[last]
        now, then = (
            (ring.local[start], ring.state[start], ring.action[start]),
            (ring.next_local[last], ring.next_state[last]),
        )
        return Batch(*now, reward, discount, *then)  # pyright: ignore

    for env in rows:
        env.reset(np.zeros(1, int), rng.integers(0, 2**31, 1))
    while count < settings.warmup:
        step_all(random=True)
    whole = time.perf_counter()
    while time.perf_counter() < whole + seconds or len(times) < 4:
        started = time.perf_counter()
        for _ in range(settings.train_interval):
            step_all(random=False)
        for _ in range(settings.updates):
            updates += 1
            batch = batch_of()
            state, _ = critics(state, batch, jax.random.key(updates))
            if updates % settings.policy_freq == 0:
                state, _ = actors(state, batch, jnp.int32(count))
        jax.block_until_ready(state)
        times.append(time.perf_counter() - started)
    for env in rows:
        env.close()
    steps = settings.train_interval * number
    return _head("plain", experiment) | {"steps_per_second": round(steps / sorted(times[1:])[len(times[1:]) // 2], 1)}


def _head(part: str, experiment: Experiment) -> dict[str, Any]:
    return {"part": part, "task": experiment.task, "method": experiment.sharing.method, "seeds": experiment.run.seeds}


def _ms(times: list[float], number: int) -> float:
    return round(1000 * sorted(times)[len(times) // 2] / number, 3)


def compare(found: argparse.Namespace) -> None:
    """Method by method, since each has settings of its own."""
    words = against.words_without(["--against", "--rounds", "--methods", "--out"])
    for method in found.methods.split(","):
        settings = against.different_settings(found.against, found.task, method, but=("run.seeds",))
        both = [*words, "--methods", method]
        against.compare(Path(__file__), found.against, both, found.rounds, settings=settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="mamujoco/halfcheetah-2x3")
    parser.add_argument("--methods", default="prism")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--parts", default="update,loop,plain")
    parser.add_argument("--seconds", type=float, default=10.0, help="measuring time for each row")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="for example run.envs=20")
    parser.add_argument("--out", type=Path, help="write rows as JSON lines")
    parser.add_argument("--tf32", action="store_true", help="products on a GPU with inputs rounded to TF32")
    against.add_options(parser)
    found = parser.parse_args()
    if found.against:
        compare(found)
        return
    configure_jax(tf32=found.tf32)
    kinds = {"update": update_row, "loop": loop_row, "plain": plain_row}
    machine, rows = describe_machine(), []
    for part in found.parts.split(","):
        for method in found.methods.split(","):
            for seeds in [1] if part == "plain" else map(int, found.seeds.split(",")):
                row = kinds[part](experiment_of(found.task, method, seeds, found.set), found.seconds)
                print(json.dumps(row), flush=True)
                rows.append(row | {"machine": machine})
    rates = {row["part"]: row["steps_per_second"] for row in rows if row["seeds"] == 1 and "steps_per_second" in row}
    if len(rates) == 2:
        print(f"loop / plain: {rates['loop'] / rates['plain']:.2f}")
    if found.out:
        found.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
