"""Our QMIX beside EPyMARL's on Level-Based Foraging, at equal work and in turn.

    python benchmarks/epymarl_rivals.py --checkout ../epymarl --python ../env/bin/python

Nothing of theirs is kept here: ``--checkout`` is a copy of their repository, and ``--python`` an interpreter with their
packages (torch, sacred, lbforaging, pyyaml; smaclite, which they import and this does not need, may be missing). Their
own training loop runs as it is, with their own settings files and the values that they publish for this task, which are
our preset's; it runs in one thread, as their ``main.py`` sets it. We measure from one episode to another.

Equal work is one environment and, after every episode, one gradient step on ``--batch`` episodes: same inputs, layers,
mixer, targets, standardised rewards and a target network that follows slowly. Both sides count their gradient steps and
their parameters, and the program stops where they are not equal. Ours plays in JAX (``lbf``) and in the package that
theirs plays in (``lbforaging``), in the training process as theirs does; with ``--patience 300``, our default, in a
process of its own, whose CPU time counts. Prism has more parameters, which a row says.

``products_ms`` is the CPU time that the machine takes for all matrix products of an iteration, each form alone in a
compiled loop, measured in the same turn; ``share`` is that time divided by ours.
"""

import argparse
import dataclasses
import itertools
import json
import os
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from in_turn import Measured, Side, compare, counts, per_iteration, serve, spent, summary, with_their_network

if TYPE_CHECKING:
    from products import Product

FIELD, HORIZON, MORE = "10x10-3p-3f", 50, 1 << 30
TASKS, METHODS = ("lbf", "lbforaging"), ("fups_id", "prism")


def theirs(found: argparse.Namespace) -> None:
    """Their ``run_sequential``, which is stopped between two episodes whenever a measurement begins or ends."""
    import torch  # pyright: ignore[reportMissingImports]
    import yaml

    source = found.checkout / "src"
    sys.path.insert(0, str(source))
    sys.modules.setdefault("smaclite", types.ModuleType("smaclite"))
    import run  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    config: dict[str, Any] = {}
    for name in ("default.yaml", "envs/gymma.yaml", "algs/qmix.yaml"):
        config |= yaml.safe_load((source / "config" / name).read_text())
    config |= their_settings(found)
    torch.manual_seed(config["seed"])
    learners: list[Any] = []

    class Learner(run.le_REGISTRY["q_learner"]):
        def __init__(self, *given: Any, **named: Any):
            super().__init__(*given, **named)
            learners.append(self)

    class Runner(run.r_REGISTRY["episode"]):
        def __init__(self, *given: Any, **named: Any):
            super().__init__(*given, **named)
            self.turns = their_turns(found, self, learners)

        def run(self, test_mode: bool = False) -> Any:
            if not test_mode:
                next(self.turns)
            return super().run(test_mode)

    run.le_REGISTRY["q_learner"], run.r_REGISTRY["episode"] = Learner, Runner
    silent: Any = types.SimpleNamespace(info=lambda *words: None)
    run.run_sequential(types.SimpleNamespace(**config), run.Logger(silent))


def their_turns(found: argparse.Namespace, runner: Any, learners: list[Any]) -> Iterator[None]:
    """Asked for a value before each of their episodes; what is measured happens between two values."""
    yield from itertools.repeat(None, found.batch + 20)  # from then on every episode has an update
    learner = learners[0]
    print(json.dumps({"parameters": sum(leaf.numel() for leaf in learner.params)}), flush=True)
    for _ in sys.stdin:
        steps, updates = runner.t_env, learner.training_steps
        wall, cpu = time.perf_counter(), time.process_time()
        yield from itertools.repeat(None, found.iterations)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        made = learner.training_steps - updates
        if made != found.iterations:
            sys.exit(f"their script made {made} gradient steps in {found.iterations} episodes")
        row = per_iteration(wall, cpu, found.iterations, made)
        print(json.dumps(row | {"steps": round((runner.t_env - steps) / found.iterations, 1)}), flush=True)
    sys.exit()


def their_settings(found: argparse.Namespace) -> dict[str, Any]:
    """What they publish for this task with shared parameters, no tests, and no end."""
    env = {"key": f"lbforaging:Foraging-{FIELD}-v3", "time_limit": HORIZON, "pretrained_wrapper": None, "seed": 0}
    return {
        "env_args": env,
        "seed": 0,
        "use_cuda": False,
        "device": "cpu",
        "use_rnn": True,
        "hidden_dim": 64,
        "lr": 0.0003,
        "target_update_interval_or_tau": 0.01,
        "epsilon_anneal_time": 200_000,
        "batch_size": found.batch,
        "test_nepisode": 1,
        "test_interval": MORE,
        "t_max": MORE,
        "unique_token": "",
    }


def ours(found: argparse.Namespace) -> tuple[Callable[[], Measured], dict[str, Any]]:
    """Our trainer on one of the tasks, and how many parameters it trains."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    from products import Alone, operations

    trainer = our_trainer(found)
    state = jax.block_until_ready(jax.jit(trainer.init)() if trainer.collector.compiled else trainer.init())
    parameters = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(state.seeds.state.online, eqx.is_inexact_array)))

    def advance(state: Any, goal: Any) -> Any:
        return trainer.advance(state, goal, learn=True)

    if trainer.collector.compiled:
        advance = jax.jit(advance, donate_argnums=0).lower(state, jnp.int32(0)).compile()

    def train(episodes: int) -> None:
        nonlocal state
        goal = int(state.seeds.steps[0]) + episodes * HORIZON
        state = jax.block_until_ready(advance(state, jnp.int32(goal)))

    train(found.batch + 20)
    alone = Alone(our_products(trainer, state))

    def measure() -> Measured:
        before = counts(state)
        wall, cpu = spent(lambda: train(found.iterations))
        made = {name: value - before[name] for name, value in counts(state).items()}
        if made["updates"] != made["iterations"]:
            sys.exit(f"ours made {made['updates']} gradient steps in {made['iterations']} episodes")
        row = per_iteration(wall, cpu, made["iterations"], made["updates"])
        products = alone.milliseconds()
        share = {"products_ms": round(products, 3), "share": round(products / row["cpu_ms"], 3)}
        return Measured(row | {"steps": round(made["steps"] / made["iterations"], 1)} | share)

    about = {"parameters": parameters, "mflop": round(operations(alone.found) / 1e6, 1)}
    return measure, about


def our_trainer(found: argparse.Namespace) -> Any:
    """A trainer with our preset's values, which are those that they publish, and their layers."""
    from prism_marl.experiment.presets import preset
    from prism_marl.training.build import make_trainer

    task, method = found.side.split()
    experiment = preset(f"lbf/{FIELD}", method).with_option("learner.batch", str(found.batch))
    experiment = dataclasses.replace(experiment, task=f"{task}/{FIELD}")
    experiment = experiment.with_option("run.patience", str(found.patience))
    experiment.validate()
    trainer = make_trainer(experiment)
    return with_their_network(trainer) if found.network == "theirs" else trainer


def our_products(trainer: Any, state: Any) -> "Counter[Product]":
    """The products of one episode and one update where all episodes last as long as they may, as those of random play
    nearly do: then rows (learners/packed.py) hold one episode each."""
    import jax
    from products import count, scaled

    from prism_marl.learners.packed import LANES, block_height
    from prism_marl.learners.seeds import without_axis

    learner, key = trainer.learner, jax.random.key(0)
    state = without_axis(state.seeds.state)
    batch = jax.eval_shape(lambda: learner.episodes.sample(learner.buffer(), key, learner.settings.batch))
    height = block_height(learner.settings.batch, learner.spec.agents)
    update = jax.make_jaxpr(learner.improve)(state, batch, jax.numpy.int32(0))
    policy = jax.eval_shape(learner.policy, state)
    seen = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), learner.template().obs)
    memory = jax.eval_shape(lambda policy: learner.memory(policy, 1), policy)

    def act(policy: Any, memory: Any, seen: Any) -> Any:
        return learner.act(policy, memory, seen, key, jax.numpy.int32(0), "explore")

    step = jax.make_jaxpr(act)(policy, memory, seen)
    found = count(update, [learner.settings.batch / height / LANES]) + count(jax.make_jaxpr(learner.policy)(state), [])
    return found + scaled(count(step, []), HORIZON)


def compared(rows: list[dict[str, Any]], sides: list[Side]) -> list[dict[str, Any]]:
    """A row for each of ours: ratios, and which part of its time is products."""
    found = []
    for side in sides[1:]:
        share = [row["share"] for row in rows if row["side"] == side.name]
        found.append({"side": side.name} | side.about | summary(rows, side.name) | {"share": median(share)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, help="a copy of their repository")
    parser.add_argument("--python", type=Path, required=True, help="an interpreter with their packages")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--methods", default=",".join(METHODS), help="our sharing methods")
    parser.add_argument("--network", choices=["theirs", "ours"], default="theirs", help="layers of our agent")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=60, help="episodes in one measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=0.0, help="above 0: games play in processes of their own")
    parser.add_argument("--cores", type=int, help="let both sides use so many cores; else all there are")
    parser.add_argument("--ours", type=Path, help="another checkout of ours")
    parser.add_argument("--out", type=Path, help="write rows as JSON lines")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: found.cores])
    if found.side == "theirs":
        theirs(found)
    elif found.side:
        serve(*ours(found))
    else:
        measure(found)


def measure(found: argparse.Namespace) -> None:
    root = Path(__file__).resolve().parents[1] if found.ours is None else found.ours.resolve()
    sides = [Side("theirs", found.python, __file__, [])]
    for task, method in itertools.product(found.tasks.split(","), found.methods.split(",")):
        sides.append(Side(f"{task} {method}", Path(sys.executable), __file__, [root / "src"]))
        if (
            found.network == "theirs"
            and method == "fups_id"
            and sides[-1].about["parameters"] != sides[0].about["parameters"]
        ):
            sys.exit(f"parameters are not equal: theirs {sides[0].about}, ours {sides[-1].about}")
    rows = compare(sides, found.rounds)
    settings = {name: getattr(found, name) for name in ("network", "batch", "iterations", "patience", "cores")}
    ends = [{"table": "epymarl_rivals"} | settings | row for row in compared(rows, sides)]
    print(*map(json.dumps, ends), sep="\n")
    if found.out:
        found.out.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *ends]))


if __name__ == "__main__":
    main()
