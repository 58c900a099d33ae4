"""Our QMIX beside the training script of another code base, at equal work and in turn.

    python benchmarks/rivals.py jaxmarl --checkout ../JaxMARL --python ../env/bin/python

Nothing of theirs is kept here: ``--checkout`` is a copy of their repository, and ``--python`` an interpreter with their
packages and ours (jaxmarl also with its baselines' packages). Their own script is imported and compiled as it is; only
its settings are given. Each side runs in a process of its own that compiles once, then both take turns: theirs, ours,
theirs, ours, ...

Equal work is ``--envs`` rows of a whole time limit and ``--updates`` gradient steps on ``--batch`` episodes, with the
same inputs, layer widths, mixer and one-step targets. Ours stops collecting and learning where the last episode of a
batch has ended; theirs starts a new episode inside the row. Each side counts its gradient steps, and the program stops
where they are not what was asked for: their replay learns nothing before it holds as many iterations as a batch has
episodes. Their time is that of a long training minus that of a short one, so that this start is not part of it.

A ratio is their time / ours of the same turn: above 1, we are faster. Shown are medians, and the lowest and highest.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from in_turn import Measured, Side, compare, counts, per_iteration, serve, spent, summary, with_their_network

SCENARIO = "smacv2_5_units"
WIDTH, EMBED, HYPERNET, LENGTH, BUFFER = 64, 32, 64, 100, 1000


def theirs(found: argparse.Namespace) -> Callable[[], Measured]:
    """JaxMARL's ``baselines/QLearning/qmix_rnn.py``, compiled for a short and for a long training."""
    import jax

    script = found.checkout / "baselines" / "QLearning" / "qmix_rnn.py"
    spec = importlib.util.spec_from_file_location("qmix_rnn", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    key = jax.random.split(jax.random.PRNGKey(0), 1)  # as their ``single_run`` does with one seed

    def compiled(iterations: int) -> Any:
        config = their_config(found, iterations)
        env, _ = module.env_from_config(config)
        train = jax.jit(jax.vmap(module.make_train(config, env))).lower(key).compile()
        return lambda: jax.block_until_ready(train(key))

    # Replay can be sampled from the iteration that fills a batch, which is the first one that learns.
    silent, programs = found.batch - 1, {}
    for iterations in (silent + 1, silent + 1 + found.iterations):
        programs[iterations] = compiled(iterations)
        steps = int(programs[iterations]()["runner_state"][0].grad_steps[0])
        expected = (iterations - silent) * found.updates
        if steps != expected:
            sys.exit(f"their script made {steps} gradient steps in {iterations} iterations and not {expected}")

    def measure() -> Measured:
        (short, short_cpu), (long, long_cpu) = (spent(program) for program in programs.values())
        return per_iteration(long - short, long_cpu - short_cpu, found.iterations, found.iterations * found.updates)

    return measure


def their_config(found: argparse.Namespace, iterations: int) -> dict[str, Any]:
    """Their settings of SMAX with our sizes."""
    return {
        "TOTAL_TIMESTEPS": iterations * LENGTH * found.envs,
        "NUM_ENVS": found.envs,
        "NUM_STEPS": LENGTH,
        "BUFFER_SIZE": BUFFER,
        "BUFFER_BATCH_SIZE": found.batch,
        "HIDDEN_SIZE": WIDTH,
        "MIXER_EMBEDDING_DIM": EMBED,
        "MIXER_HYPERNET_HIDDEN_DIM": HYPERNET,
        "MIXER_INIT_SCALE": 0.001,
        "EPS_START": 1.0,
        "EPS_FINISH": 0.05,
        "EPS_DECAY": 0.1,
        "MAX_GRAD_NORM": 10,
        "TARGET_UPDATE_INTERVAL": 10,
        "TAU": 1.0,
        "NUM_EPOCHS": found.updates,
        "LR": 0.00005,
        "LEARNING_STARTS": 0,
        "GAMMA": 0.99,
        "REW_SCALE": 10.0,
        "ENV_NAME": "HeuristicEnemySMAX",
        "MAP_NAME": SCENARIO,
        "ENV_KWARGS": {"see_enemy_actions": True, "walls_cause_death": True, "attack_mode": "closest"},
        "TEST_DURING_TRAINING": False,
        "TEST_NUM_ENVS": 1,  # they make the environments of tests, even where there are no tests
        "WANDB_MODE": "disabled",
    }


def ours(found: argparse.Namespace) -> Callable[[], Measured]:
    """Our trainer with the same sizes; it goes on from measurement to measurement."""
    import jax
    import jax.numpy as jnp

    trainer = our_trainer(found)
    state = jax.block_until_ready(jax.jit(trainer.init)())

    def advance(state: Any, goal: Any) -> Any:
        return trainer.advance(state, goal, learn=True)

    program = jax.jit(advance, donate_argnums=0).lower(state, jnp.int32(0)).compile()
    piece = found.envs * LENGTH  # steps of an iteration at most
    state = jax.block_until_ready(program(state, jnp.int32((found.batch // found.envs + 2) * piece)))

    def measure() -> Measured:
        nonlocal state
        before = counts(state)

        def train() -> None:
            nonlocal state
            while int(state.clock.iteration) - before["iterations"] < found.iterations:
                goal = int(state.seeds.steps.min()) + piece
                state = jax.block_until_ready(program(state, jnp.int32(goal)))

        wall, cpu = spent(train)
        made = {name: value - before[name] for name, value in counts(state).items()}
        if made["updates"] != made["iterations"] * found.updates:
            sys.exit(f"ours made {made['updates']} gradient steps in {made['iterations']} iterations")
        result = per_iteration(wall, cpu, made["iterations"], made["updates"])
        return Measured(result | {"steps": round(made["steps"] / made["iterations"], 1)})

    return measure


def our_trainer(found: argparse.Namespace) -> Any:
    """A trainer with their sizes; ``--network theirs`` leaves out the two hidden layers that only ours has."""
    from prism_marl.experiment.presets import preset
    from prism_marl.training.build import make_trainer

    experiment = preset(f"jaxmarl/smax-{SCENARIO}", found.method)
    for path, value in our_settings(found).items():
        experiment = experiment.with_option(path, str(value))
    experiment.validate()
    trainer = make_trainer(experiment)
    return with_their_network(trainer) if found.network == "theirs" else trainer


def our_settings(found: argparse.Namespace) -> dict[str, Any]:
    """The same work in our words; the agents' ids are part of their inputs, last actions are not."""
    return {
        "run.envs": found.envs,
        "learner.episodes_per_update": found.envs // found.updates,
        "learner.batch": found.batch,
        "learner.buffer": BUFFER,
        "learner.embed": EMBED,
        "learner.hypernet": HYPERNET,
        "learner.td_lambda": 0.0,
        "learner.last_action": "false",
        "network.width": WIDTH,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rival", choices=["jaxmarl"])
    parser.add_argument("--checkout", type=Path, required=True, help="a copy of their repository")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="an interpreter with both's packages")
    parser.add_argument("--method", default="fups_id", help="our sharing method")
    parser.add_argument("--network", choices=["theirs", "ours"], default="theirs", help="layers of our agent")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--updates", type=int, default=2, help="gradient steps of an iteration")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=20, help="in one measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ours", type=Path, help="another checkout of ours")
    parser.add_argument("--out", type=Path, help="write rows as JSON lines")
    parser.add_argument("--side", choices=["theirs", "ours"], help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.side:
        serve({"theirs": theirs, "ours": ours}[found.side](found))
        return
    root = Path(__file__).resolve().parents[1] if found.ours is None else found.ours.resolve()
    paths = [root / "src", found.checkout]
    rows = compare([Side(name, found.python, __file__, paths) for name in ("theirs", "ours")], found.rounds)
    settings = {name: getattr(found, name) for name in ("rival", "method", "network", "envs", "updates", "batch")}
    rows.append({"table": "rivals"} | settings | summary(rows))
    print(json.dumps(rows[-1]))
    if found.out:
        found.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
