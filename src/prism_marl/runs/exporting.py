"""Policies out of a run folder: the newest checkpoint as plain matrices, checked against the learner itself."""

import contextlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_marl import envs
from prism_marl.envs import Meaning
from prism_marl.errors import UserError
from prism_marl.learners.base import Deployable, Learner
from prism_marl.policies.export import BATCH, ENDINGS, STEPS, Exported, check_format, export_policy, measure
from prism_marl.policies.extract import Origin, extract, seed_state
from prism_marl.policies.files import factors_file, policy_file, read_policy, write_policy
from prism_marl.policies.policy import Policy
from prism_marl.registration import is_foreign
from prism_marl.runs import checkpoint
from prism_marl.runs.folder import owner
from prism_marl.runs.trained import load_trained
from prism_marl.storage.files import HeldFolder, write_atomically
from prism_marl.training.trainer import Trainer
from prism_marl.types import Observation

SIZES = "deployment.json"  # in a run folder: what the policy of one agent costs
FACTORED_ABOVE = 2**26  # bytes of plain matrices, above which a finished run keeps shared factors as they are
INTERACTIVE = 2**17  # numbers of a policy that the page may play, for which a finished run keeps the factors
CLOSE = 1e-4  # two actions whose values differ by less may be exchanged by rounding


@dataclass(frozen=True)
class RunPolicies:
    """The policies of all seeds of a run, at one checkpoint."""

    trainer: Trainer
    states: Any  # the learner's, with an axis of seeds
    origin: Origin  # of the first seed

    @staticmethod
    def of(folder: Path) -> "RunPolicies":
        """Of the newest checkpoint that can be used."""
        trainer, state, passed_over = load_trained(folder)
        with contextlib.closing(trainer):
            number = int(checkpoint.paths(folder / "checkpoints")[len(passed_over)].stem)
            finished = (folder / "done").exists()
            return RunPolicies.at(trainer, state, folder, number, finished=finished)

    @staticmethod
    def at(trainer: Trainer, state: Any, folder: Path, number: int, *, finished: bool) -> "RunPolicies":
        """Of a state of training."""
        experiment = trainer.experiment
        origin = Origin(
            method=experiment.sharing.method,
            learner=experiment.learner.algorithm,
            run=owner(folder),
            seed=experiment.run.seed,
            steps=int(jnp.min(state.seeds.steps)),
            checkpoint=number,
            finished=finished,
        )
        return RunPolicies(trainer, state.seeds.state, origin)

    @cached_property
    def meaning(self) -> Meaning:
        return envs.meaning(self.trainer.experiment.task)

    def policy(self, seed: int | None = None, *, agent: int | None = None, factored: Any = False) -> Policy:
        """The policy of one seed, by default the first."""
        run = self.trainer.experiment.run
        chosen = run.seed if seed is None else seed
        last = run.seed + run.seeds - 1
        if not run.seed <= chosen <= last:
            raise UserError(f"seed: this run has seeds {run.seed} to {last}, not {chosen}")
        state = seed_state(self.states, chosen - run.seed)
        origin = Origin(**{**vars(self.origin), "seed": chosen})
        return extract(self.trainer.learner, state, origin, self.meaning, agent=agent, factored=factored)


def export_run(
    folder: Path,
    path: Path | None = None,
    *,
    format: str | None = None,
    seed: int | None = None,
    agent: int | None = None,
    factored: bool = False,
) -> tuple[Exported, Policy, dict[str, int]]:
    """Export a policy of a run's newest checkpoint: what was written, the policy, and the bytes of its arrays as plain
    matrices and with shared factors. By default the file goes into the run folder."""
    ending = _ending(path, format)
    check_format(ending)
    policies = RunPolicies.of(folder)
    forms = {name: policies.policy(seed, agent=agent, factored=name == "factored") for name in ("dense", "factored")}
    policy = forms["factored" if factored else "dense"]
    check_against(policies.trainer.learner, policies.states, policies.trainer.experiment.run.seed, policy)
    if path is None:
        who = "" if agent is None else f"-agent-{agent}"
        path = folder / f"policy-seed-{policy.contract.seed}{who}{ending}"
    return export_policy(policy, path), policy, {name: form.bytes for name, form in forms.items()}


def _ending(path: Path | None, format: str | None) -> str:
    """The ending of the file, from its name or from the format; they must agree."""
    if format is not None and format not in ENDINGS:
        raise UserError(f"--format: there is no '{format}'; choose one of {', '.join(ENDINGS)}")
    found = None if path is None else path.suffix.lower()
    if found is not None and found not in ENDINGS.values():
        raise UserError(f"--out: {path} must end in {', '.join(ENDINGS.values())}")
    wanted = None if format is None else ENDINGS[format]
    if found is not None and wanted is not None and found != wanted:
        raise UserError(f"--out: {path} does not end in {wanted}, as --format {format} asks for; change one of them")
    return found or wanted or ENDINGS["onnx"]


def check_against(learner: Learner, states: Any, first: int, policy: Policy) -> None:
    """Raise unless the policy acts as the learner's own greedy policy, over some steps of made-up observations."""
    c, spec, rng = policy.contract, learner.spec, np.random.default_rng(1)
    acting = learner.policy(seed_state(states, c.seed - first))
    act = jax.jit(lambda memory, obs: learner.act(acting, memory, obs, jax.random.key(0), jnp.int32(0), "greedy"))
    theirs, mine = learner.memory(acting, BATCH), policy.reset(BATCH)
    agents = slice(None) if c.agent is None else c.agent
    for _ in range(STEPS):
        obs = _observations(spec, c.scale, rng)
        parts = Observation(*(jnp.asarray(part) for part in obs))
        theirs, expected, _ = act(theirs, parts)
        local, avail, role = (np.asarray(part)[:, agents] for part in (obs.local, obs.avail, obs.role))
        values, _ = policy.outputs(local, mine, role)
        action, mine = policy.act(local, mine, avail, role)
        if not _same(c.rule, np.where(avail, values, -np.inf), action, np.asarray(expected)[:, agents]):
            raise UserError(
                f"{type(learner).__name__}.deployment: the exported policy does not act as the learner; nothing was "
                "exported"
            )
        if c.last_action:  # where rounding has exchanged two actions, both go on from the same one
            last = np.eye(c.actions, dtype=np.float32)[np.asarray(expected)[:, agents]]
            mine[..., c.hidden :] = last


def _observations(spec: Any, scale: float, rng: np.random.Generator) -> Observation:
    """A made-up batch as an environment of these sizes could return it."""
    local = rng.uniform(-1, 1, (BATCH, spec.agents, spec.observation)) / (scale or 1)
    state = rng.uniform(-1, 1, (BATCH, spec.state)) / (scale or 1)
    if spec.shared_observation:
        local = np.broadcast_to(state[:, None], local.shape)
    sizes = (BATCH, spec.agents, spec.actions)
    avail = np.ones(sizes, bool)
    if spec.kind == "discrete":
        avail = (rng.random(sizes) < 0.7) | (np.arange(spec.actions) == 0)
    role = np.broadcast_to(np.arange(spec.agents), sizes[:2])
    if spec.roles != spec.agents:
        role = rng.integers(0, spec.roles, sizes[:2])
    return Observation(*(np.asarray(part, np.float32) for part in (local, state)), avail, role)  # pyright: ignore


def _same(rule: str, values: np.ndarray, action: np.ndarray, expected: np.ndarray) -> bool:
    if rule == "direct":
        return bool(np.allclose(action, expected, atol=CLOSE))
    chosen = np.take_along_axis(values, expected[..., None], axis=-1)[..., 0]
    return bool(np.all((action == expected) | (values.max(axis=-1) - chosen <= CLOSE * np.abs(chosen).clip(1))))


def _kept(folder: Path, seed: int, number: int) -> bool:
    """Whether the policies of a checkpoint have been written before: a finished run is left as it is."""
    if not (folder / SIZES).exists() or not policy_file(folder, seed).exists():
        return False
    try:
        return read_policy(policy_file(folder, seed), folder).contract.checkpoint == number
    except UserError:
        return False


def write_policies(trainer: Trainer, state: Any, folder: Path, number: int, inside: HeldFolder | None = None) -> None:
    """Keep the policies of a finished run in its folder, and note what one of an agent costs. Learners that do not say
    how they act outside of training have none."""
    learner, run = trainer.learner, trainer.experiment.run
    if not isinstance(learner, Deployable) or _kept(folder, run.seed, number):
        return
    policies = RunPolicies.at(trainer, state, folder, number, finished=True)
    if is_foreign(type(learner)):  # it may inherit a deployment that is not how it acts
        try:
            check_against(learner, policies.states, run.seed, policies.policy())
        except UserError:
            return
    for seed in range(run.seed, run.seed + run.seeds):
        policy = policies.policy(seed)
        if policy.bytes > FACTORED_ABOVE:
            policy = policies.policy(seed, factored=True)
        write_policy(policy, policy_file(folder, seed), inside)
    factors = policies.policy(factored="every")
    if factors.parameters <= INTERACTIVE and any(name.endswith(".s") for name in factors.tensors):
        write_policy(factors, factors_file(folder), inside)
    one, factored = policies.policy(agent=0), policies.policy(agent=0, factored=True)
    latency = measure(one, seconds=0.05)
    sizes = {
        "agents": one.contract.agents,
        "parameters": one.parameters,
        "bytes": one.bytes,
        "factored_bytes": factored.bytes,
        "multiply_adds": one.multiply_adds,
        "microseconds": latency.microseconds,
        "runtime": latency.runtime,
    }
    write_atomically(folder / SIZES, (json.dumps(sizes, indent=1) + "\n").encode(), inside)
