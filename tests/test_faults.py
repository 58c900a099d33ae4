"""Numbers that are not finite: noticed where they appear, named, kept away from checkpoints and from other seeds."""

import contextlib
import dataclasses
import functools
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.collect.host import OWN
from prism_marl.collect.host_episodes import HostEpisodes
from prism_marl.envs import registry
from prism_marl.envs.python.base import observation, outcome
from prism_marl.envs.python.rows import Games, PythonRows
from prism_marl.envs.roles import make_roles
from prism_marl.errors import UserError
from prism_marl.experiment.presets import preset
from prism_marl.learners import log
from prism_marl.learners.base import Clock
from prism_marl.runs import checkpoint, machine, memory, runner
from prism_marl.runs import folder as run_folder
from prism_marl.training import finite
from prism_marl.training.build import make_trainer
from prism_marl.types import EnvSpec, Observation, Step
from tiny import same_arrays, small, trainer_of


def poisoned(tree: Any, seed: int) -> Any:
    """The same arrays with the floats of one seed replaced by NaN."""
    spoil = lambda leaf: leaf.at[seed].set(jnp.nan) if eqx.is_inexact_array(leaf) else leaf  # noqa: E731
    return jax.tree.map(spoil, tree)


def of_seed(state: Any, seed: int) -> dict[str, np.ndarray]:
    return {name: value[seed] for name, value in checkpoint.flatten(state.seeds).items()}


def when(state: Any) -> dict[str, list[int]]:
    """Terms that failed, with the steps of all seeds."""
    found = {term: np.asarray(steps).tolist() for term, steps in state.log.faults.items()}
    return {term: steps for term, steps in found.items() if any(step != log.NEVER for step in steps)}


# Counters.


def test_the_first_time_stays_and_what_was_given_comes_before_what_was_made_of_it():
    told = log.empty_log(["loss", "grad_norm"]).check({"reward": jnp.asarray(True)}, jnp.int32(3))
    assert finite.first_fault({term: np.asarray([step]) for term, step in told.faults.items()}) is None
    told = told.add({"loss": jnp.asarray(jnp.inf), "grad_norm": jnp.asarray(jnp.nan)}, jnp.int32(5))
    told = told.add({"loss": jnp.asarray(jnp.nan), "grad_norm": jnp.ones(())}, jnp.int32(6))
    counters = told.check({"observation": jnp.asarray(False)}, jnp.int32(5)).faults
    both = {term: np.asarray([log.NEVER, step]) for term, step in counters.items()}
    assert finite.first_fault(both) == (1, 5, ["observation"], 1)
    both["observation"][1] = 6
    assert finite.first_fault(both) == (1, 5, ["loss", "grad_norm"], 1)
    both["loss"][0] = 9
    assert finite.first_fault(both) == (0, 9, ["loss"], 2)
    assert not log.all_finite({"a": jnp.ones(3), "b": jnp.asarray([1.0, -jnp.inf])})
    assert log.all_finite({"a": jnp.ones(3), "n": jnp.arange(2), "empty": jnp.zeros((0, 2))})


def test_the_sentence_names_seed_step_term_and_remedy():
    experiment = small("roles/2", "fups", run__seed="3", run__seeds="2")
    said = finite.explained(finite.Fault(1, 40, ["loss", "td_loss", "grad_norm", "more"]), experiment)
    assert said.startswith("seed 4: loss, td_loss and grad_norm are not finite at step 40; the last checkpoint is kept")
    assert "the other seeds are sound" in said and said.endswith("lower learner.lr or learner.clip")
    said = finite.explained(finite.Fault(0, 40, ["loss"], seeds=2), experiment)
    assert "all seeds have such a fault" in said and "sound" not in said
    said = finite.explained(finite.Fault(0, 40, ["loss"], seeds=2), experiment.with_option("run.seeds", "3"))
    assert "2 of 3 seeds have such a fault" in said and "sound" not in said
    said = finite.explained(finite.Fault(0, 1, ["reward"]), preset("reach/3", "fups"))
    assert said.endswith("reward is not finite at step 1; the last checkpoint is kept; "
                         "the task 'reach/3' gives such numbers")  # fmt: skip


def test_weights_are_looked_at_before_they_are_saved():
    held = {"seeds.steps": np.array([7, 8]), "seeds.state.a.b": np.ones((2, 3)), "seeds.buffer.x": np.array([np.nan])}
    assert finite.broken_weights(held) is None
    held["seeds.state.a.b"][1, 2] = np.inf
    assert finite.broken_weights(held) == (1, 8, ["a.b"], 1)
    held["seeds.state.c"] = np.array([np.nan, np.nan])
    assert finite.broken_weights(held) == (0, 7, ["c"], 2)


# JAX environments with QMIX: one program serves all cases, and the keys of seed 1 decide what befalls it.


@dataclasses.dataclass(frozen=True)
class Treacherous:
    """``roles/2`` in which one start in sixteen brings a NaN reward and another a NaN observation."""

    spec: Any = make_roles("2").spec

    def reset(self, key):
        state, obs = make_roles("2").reset(key)
        fate = jax.random.randint(jax.random.fold_in(key, 1), (), 0, 16)
        return (state, fate), obs._replace(local=jnp.where(fate == 1, jnp.nan, obs.local))

    def step(self, key, state, action):
        state, fate = state
        state, step = make_roles("2").step(key, state, action)
        return (state, fate), step._replace(reward=jnp.where(fate == 2, jnp.inf, step.reward))


def test_what_befalls_one_seed_is_named_and_leaves_the_other_alone():
    experiment = small("roles/2", "fups", run__seeds="2")
    trainer = trainer_of(experiment, Treacherous())
    program = jax.jit(lambda state: trainer.advance(state, jnp.int32(12), learn=True))
    start = jax.jit(trainer.init)()

    def played(state, *numbers: int):
        keys = jax.vmap(jax.random.key)(jnp.asarray(numbers, jnp.uint32))
        return program(eqx.tree_at(lambda s: s.seeds.state.key, state, keys))

    first = {n: finite.first_fault(jax.device_get(played(start, n, n).seeds.log.faults)) for n in range(100, 112)}
    safe = next(number for number, fault in first.items() if fault is None)
    assert {fault.terms[0] for fault in first.values() if fault} == {"observation", "reward"}
    alone = of_seed(played(start, safe, safe), 0)
    for number, fault in first.items():
        state = played(start, safe, number)
        found = finite.first_fault(jax.device_get(state.seeds.log.faults))
        assert found == (fault and fault._replace(seed=1, seeds=1)) and (fault is None or fault.step in range(2, 13, 2))
        assert same_arrays(of_seed(state, 0), alone)

    broken = eqx.tree_at(lambda s: s.seeds.state.online, start, poisoned(start.seeds.state.online, 1))
    state = played(broken, safe, safe)
    assert {"loss", "grad_norm"} <= when(state.seeds).keys()
    assert finite.first_fault(jax.device_get(state.seeds.log.faults))[:2] == (1, 4)  # the first batch has four episodes
    assert same_arrays(of_seed(state, 0), alone)


# MATD3: again one program, and what it is given decides.


class Spoilt:
    """Rows of which one, of the second seed, gives a number that is not finite in its third step."""

    def __init__(self, env: Any, term: str):
        self.spec, self.number, self.env, self.term, self.clock = env.spec, env.number, env, term, 0
        self.reset, self.observe = env.reset, env.observe

    def step(self, action: np.ndarray) -> Step:
        step, self.clock = self.env.step(action), self.clock + 1
        if self.clock == 3 and self.term == "reward":
            step.reward[3] = np.nan
        if self.clock == 3 and self.term == "observation":
            step.obs.state[3, 0] = -np.inf
        return step


def test_matd3_names_what_befalls_one_seed_and_leaves_the_other_alone():
    trainer = make_trainer(reaching().with_option("run.seeds", "2"))
    start = trainer.advance(trainer.init(), 10, learn=False)
    policy, env = trainer._host.playing_policy(start.seeds.state), trainer.collector.env
    learn = jax.jit(functools.partial(trainer.absorb, learn=True))

    def collected(term: str):
        trainer.collector._pool[OWN] = Spoilt(env, term)
        env.restore(start.snapshot)
        clock: Any = Clock(np.int32(1), np.int32(0), ())
        return trainer.collector.collect(trainer.learner, policy, (), None, None, clock, "explore")

    clean, _ = learn(start.seeds, start.clock, *collected("nothing"))
    assert when(clean) == {}
    whole = {name: value[0] for name, value in checkpoint.flatten(clean).items()}
    state = start.seeds.state
    cases = {
        "reward": start.seeds,
        "observation": start.seeds,
        "gradient": eqx.tree_at(lambda s: s.state.actor_optimiser, start.seeds, poisoned(state.actor_optimiser, 1)),
        "critic_loss": eqx.tree_at(lambda s: s.state.target, start.seeds, poisoned(state.target, 1)),
    }
    for term, given in cases.items():
        seeds, _ = learn(given, start.clock, *collected(term))
        fault = finite.first_fault(jax.device_get(seeds.log.faults))
        assert fault[:2] == (1, 20) and term in fault.terms
        assert term not in log.GIVEN or fault.terms == [term]
        assert same_arrays({name: value[0] for name, value in checkpoint.flatten(seeds).items()}, whole)


def reaching():
    """The smallest MATD3."""
    experiment = preset("reach/3", "fups")
    sizes = {
        "critic_width": 8,
        "n_critics": 2,
        "batch": 8,
        "buffer": 120,
        "warmup": 20,
        "train_interval": 5,
        "updates": 5,
    }
    for path, value in {"network.width": 8, "run.envs": 2, **{f"learner.{k}": v for k, v in sizes.items()}}.items():
        experiment = experiment.with_option(path, str(value))
    return experiment


# Environments in Python.


class Mine:
    """Two steps; the copy of it that is built as number ``trap`` gives a NaN once it has been played five times."""

    spec = EnvSpec("mine", 2, observation=1, state=1, actions=2, roles=2, horizon=2, storage="int8")
    built = 0
    trap, term = 3, "reward"

    def __init__(self):
        self.number, self.plays, self.clock = Mine.built, 0, 0
        Mine.built += 1

    def reset(self, seed: int) -> Observation:
        self.plays, self.clock = self.plays + 1, 0
        return self._observed(1.0)

    def step(self, action) -> Step:
        self.clock += 1
        value = np.nan if self.number == self.trap and self.plays > 5 else 1.0
        obs = self._observed(value if self.term == "observation" else 1.0)
        reward = value if self.term == "reward" else 1.0
        return outcome(obs, reward, terminated=False, truncated=self.clock == 2)

    def _observed(self, value: float) -> Observation:
        return observation(np.full((2, 1), value), np.ones((2, 2), bool), np.full(1, value))

    def scene(self) -> None:
        return None

    def close(self) -> None:
        pass


def test_a_python_environment_that_gives_nonsense_ends_the_run_with_the_seed_and_the_step(tmp_path, monkeypatch):
    family = registry.Family("mine/<x>", (), "for tests", python=lambda variant: Mine())
    monkeypatch.setitem(registry._FAMILIES, "mine", family)
    monkeypatch.setattr(Mine, "built", -1)  # the first is asked for its sizes only
    sizes = {"run__seeds": "2", "run__seed": "7", "run__steps": "200", "run__eval_every": "100"}
    experiment = small("mine/x", "fups", run__patience="0", **sizes)
    folder = tmp_path / "run"
    with pytest.raises(UserError, match=r"^seed 8: reward is not finite at step \d+; .*'mine/x' gives such") as error:
        runner.run(experiment, folder)
    assert error.value.code == 1 and "\n" not in str(error.value) and not (folder / "done").exists()
    like = runner.make_trainer(experiment).shapes()
    state, notes, _ = checkpoint.load_newest(folder / "checkpoints", like, run_folder.owner(folder))
    assert notes["evaluation"] == 1 and state.seeds.steps.tolist() == [0, 0]
    assert finite.first_fault(jax.device_get(state.seeds.log.faults)) is None


@pytest.mark.parametrize("term", log.GIVEN)
def test_what_a_python_environment_gives_is_looked_at_before_it_is_rounded(monkeypatch, term):
    monkeypatch.setattr(Mine, "built", 0)
    monkeypatch.setattr(Mine, "term", term)
    games: Any = [Mine() for _ in range(4)]
    games[3].plays = 5
    learner = make_trainer(small("roles/2", "fups")).learner
    names = iter(games)
    template = dataclasses.replace(learner, spec=Mine.spec).template()
    episodes = HostEpisodes(PythonRows(Games(lambda: next(names)), 4), np.arange(4).reshape(2, 2), 2, template)
    while episodes.alive.any():
        episodes.step(np.zeros((2, 2, 2), np.int32))
    assert {name: fine.tolist() for name, fine in episodes.finite.items()} == {
        name: [[True, True], [True, name != term]] for name in log.GIVEN
    }


# Memory and order.


@contextlib.contextmanager
def little_memory(spare: int) -> Iterator[None]:
    """This process gets no more than so many further bytes, however generous the system is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_memory_that_runs_out_is_explained(tmp_path, monkeypatch):
    """Dozens of gigabytes of weights for a process that may have four: the allocation itself must fail."""
    experiment = reaching().with_option("learner.buffer", str(2**31 - 8))
    monkeypatch.setattr(memory, "free_bytes", lambda: 4 * 2**30)
    with pytest.raises(UserError, match=r"replay needs \d+\.\d GiB, 4\.0 GiB are free: lower learner\.buffer"):
        runner.run(experiment, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    monkeypatch.setattr(memory, "free_bytes", lambda: None)  # a device that does not tell
    words = r"memory of the device .* ran out; .* lower run\.seeds, run\.envs"
    experiment = reaching().with_option("learner.critic_width", str(2**16))
    with little_memory(4 * 2**30), pytest.raises(UserError, match=words) as error:
        runner.run(experiment, tmp_path / "run")
    assert error.value.code == 1 and "\n" not in str(error.value)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), machine.full_memory_explained():
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")


def test_a_run_goes_on_in_the_precision_it_was_begun_with(tmp_path, monkeypatch):
    experiment = preset("roles/2", "fups")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for began, now, remedy in (
        ("tf32", "highest", "in tf32, not float32; continue it with `train --tf32`"),
        ("float32", "tensorfloat32", "in float32, not tf32; continue it without --tf32"),
    ):
        folder = tmp_path / began
        with jax.default_matmul_precision({"tf32": "tensorfloat32"}.get(began, "highest")):
            run_folder.write_config(experiment, folder)
            run_folder.write_config(experiment, folder)
        assert json.loads((folder / "machine.json").read_text())["products"] == began
        with jax.default_matmul_precision(now), pytest.raises(UserError, match=remedy):
            run_folder.write_config(experiment, folder)
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")  # which has one precision only, and goes on
    run_folder.write_config(experiment, tmp_path / "tf32")


WATCHED = """
import os, sys
import jax
from jax._src import xla_bridge
from prism_marl import api
from prism_marl.cli import train
from prism_marl.runs import machine
def experiment(*arguments, **options):
    assert not xla_bridge.backends_are_initialized()
    found = machine.describe_machine()
    print(found["deterministic"], found["products"], jax.config.jax_default_matmul_precision)
api.run_experiment = experiment
train.run(sys.argv[1:])
"""


def test_xla_reads_the_flag_for_equal_bits_before_a_device_is_used():
    """XLA ends the process if it meets a flag that it does not know."""
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    for flags, said in ((["--deterministic"], "True float32 highest"), (["--tf32"], "False float32 tensorfloat32")):
        words = [sys.executable, "-c", WATCHED, "roles/2", *flags]
        found = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert (found.returncode, found.stdout.strip()) == (0, said), found.stderr
    assert not machine.describe_machine()["deterministic"]
