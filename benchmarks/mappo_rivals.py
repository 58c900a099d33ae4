"""MAPPO with a GRU on SMAX: this package beside JaxMARL's `baselines/MAPPO/mappo_rnn_smax.py`, in turns on one machine.

    python benchmarks/mappo_rivals.py --checkout JAXMARL            # 128 environments x 128 steps, as its config has it
    python benchmarks/mappo_rivals.py --checkout JAXMARL --envs 16  # for a few cores
    python benchmarks/mappo_rivals.py --checkout JAXMARL --python PYTHON_WITH_JAXMARL

Both train at equal sizes: widths, environments, rollout, epochs, minibatches, clipping, rates. Each is compiled once;
then they train the same number of rollouts in turns, and the steps per second of every turn are printed, with the ratio
of the medians. Nothing is fetched: JAXMARL is a checkout, and the Python must have what its baselines import.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MAP, ROUNDS = "smacv2_5_units", 3
SIZES = {"length": 128, "width": 128, "epochs": 4, "minibatches": 4}


def ours(envs: int, updates: int) -> Any:
    """One call trains so many rollouts; a state goes from call to call."""
    import jax

    from prism_marl.experiment.presets import preset
    from prism_marl.training.build import make_trainer

    experiment = preset(f"jaxmarl/smax-{MAP}", "fups", learner="mappo")
    changes = {
        "network.width": SIZES["width"],
        "run.envs": envs,
        "run.steps": 10_000_000,
        "run.seeds": 1,
        "learner.length": SIZES["length"],
        "learner.epochs": SIZES["epochs"],
        "learner.minibatches": SIZES["minibatches"],
        "learner.chunk": 0,
        "learner.behind_gru": 1,
        "learner.actor_lr": 0.002,
        "learner.critic_lr": 0.002,
        "learner.lr_decay": "true",
        "learner.adam_eps": 1e-5,
        "learner.entropy": 0.0,
        "learner.value_coef": 0.5,
        "learner.huber": 0,
        "learner.value_norm": "false",
        "learner.advantages": "minibatch",
        "learner.grad_clip": 0.25,
        "learner.critic_values": "agent",
        "learner.standardise_inputs": "false",
        "learner.time_limit_ends": "true",
    }
    for path, value in changes.items():
        experiment = experiment.with_option(path, str(value))
    experiment.validate()
    trainer, each = make_trainer(experiment), updates * envs * SIZES["length"]
    advance = jax.jit(lambda state, goal: trainer.advance(state, goal, learn=True), donate_argnums=0)
    held: list[Any] = [jax.jit(trainer.init)(), 0]

    def train() -> int:
        held[1] += each
        held[0] = jax.block_until_ready(advance(held[0], held[1]))
        return each

    return train


def theirs(checkout: Path, envs: int, updates: int) -> Any:
    """Their script's own ``make_train``; every call trains from the start, compiled once. Its log goes to nobody."""
    import importlib.util
    import types

    import jax

    sys.path.insert(0, str(checkout))
    silent: Any = types.ModuleType("wandb")
    silent.log = silent.init = lambda *given, **named: None
    sys.modules.setdefault("wandb", silent)
    path = checkout / "baselines" / "MAPPO" / "mappo_rnn_smax.py"
    found = importlib.util.spec_from_file_location("mappo_rnn_smax", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    steps = updates * envs * SIZES["length"]
    config = {
        "LR": 0.002,
        "NUM_ENVS": envs,
        "NUM_STEPS": SIZES["length"],
        "TOTAL_TIMESTEPS": steps,
        "FC_DIM_SIZE": SIZES["width"],
        "GRU_HIDDEN_DIM": SIZES["width"],
        "UPDATE_EPOCHS": SIZES["epochs"],
        "NUM_MINIBATCHES": SIZES["minibatches"],
        "GAMMA": 0.99,
        "GAE_LAMBDA": 0.95,
        "CLIP_EPS": 0.2,
        "SCALE_CLIP_EPS": False,
        "ENT_COEF": 0.0,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.25,
        "ACTIVATION": "relu",
        "OBS_WITH_AGENT_ID": True,
        "MAP_NAME": MAP,
        "ENV_KWARGS": {},
        "ANNEAL_LR": True,
    }
    program = jax.jit(module.make_train(config))

    def train() -> int:
        jax.block_until_ready(program(jax.random.PRNGKey(0))["runner_state"])
        return steps

    return train


def measure(options: argparse.Namespace) -> None:
    """In a process of one side: compile, say so, then one turn for each line that comes in."""
    build = ours if options.side == "ours" else lambda *sizes: theirs(options.checkout, *sizes)
    started = time.perf_counter()
    train = build(options.envs, options.updates)
    for _ in range(2):  # the second call takes what the first has returned, which can compile once more
        train()
    print(json.dumps({"compile_seconds": time.perf_counter() - started}), flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        steps = train()
        print(json.dumps({"rate": steps / (time.perf_counter() - started)}), flush=True)


def answer(process: Any) -> dict[str, float]:
    """The next line that is JSON; other output is passed on."""
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
        sys.stderr.write(line)
    raise SystemExit(f"{process.args[-1]}: ended with exit code {process.wait()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, help="a checkout of JaxMARL")
    parser.add_argument("--python", default=sys.executable, help="a Python that has JaxMARL and its baselines' needs")
    parser.add_argument("--envs", type=int, default=128)
    parser.add_argument("--updates", type=int, default=8, help="rollouts in one turn")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="write the steps per second of every turn as a JSON line")
    parser.add_argument("--side", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (options.checkout / "baselines" / "MAPPO" / "mappo_rnn_smax.py").exists():
        parser.error(f"--checkout: {options.checkout} has no baselines/MAPPO/mappo_rnn_smax.py; clone JaxMARL there")
    if options.side:
        measure(options)
        return 0
    room = str(Path(__file__).parents[1] / "src")
    paths = os.pathsep.join([room, str(options.checkout), *filter(None, [os.environ.get("PYTHONPATH")])])
    sizes = ["--envs", str(options.envs), "--updates", str(options.updates), "--checkout", str(options.checkout)]
    sides = {}
    for side in ("ours", "theirs"):
        command = [options.python, "-P", __file__, *sizes, "--side", side]
        sides[side] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}
        )
        print(f"{side}: {answer(sides[side])['compile_seconds']:.0f} s until the first turn was over", flush=True)
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, process in sides.items():
            process.stdin.write("turn\n")
            process.stdin.flush()
            rates[side].append(answer(process)["rate"])
    for side, process in sides.items():
        process.stdin.close()
        process.wait()
        print(f"{side}: {', '.join(f'{rate:,.0f}' for rate in rates[side])} steps/s")
    ratio = statistics.median(rates["ours"]) / statistics.median(rates["theirs"])
    print(f"ratio of medians: {ratio:.2f}")
    if options.out:
        found = {"table": "mappo_rivals", "map": MAP, "envs": options.envs, "updates": options.updates} | SIZES
        row = found | {name: [round(rate) for rate in own] for name, own in rates.items()} | {"ratio": round(ratio, 3)}
        options.out.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
