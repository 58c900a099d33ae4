"""All measures of a run at one moment, as rows: one for each seed."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.collect.visits import from_dict, visits
from prism_marl.envs import Meaning
from prism_marl.errors import UserError
from prism_marl.learners.base import Deployable, Trajectory
from prism_marl.learners.conflict import compared
from prism_marl.measures.behaviour import chance_diversity, histories, policy_distances, system_diversity
from prism_marl.measures.parameters import masks_apart, private_share, zeroed
from prism_marl.policies.extract import Origin, extract, seed_state
from prism_marl.policies.policy import Policy
from prism_marl.sharing.spectral import common_directions
from prism_marl.training.compiling import quick_options
from prism_marl.training.state import TrainState
from prism_marl.training.trainer import Trainer

Spectra = Mapping[str, tuple[np.ndarray, np.ndarray]]  # values and masks [seeds, m, r] of each layer
WHOLE = "all"  # the name of all layers together, whose numbers have no ending


def measured(
    trainer: Trainer,
    states: Any,
    found: dict[str, Any],
    spectra: Spectra,
    common: Mapping[str, int],
    most: int = 4096,
) -> list[dict[str, Any]]:
    """A row for each seed, or for the first ``most`` of them. ``found`` is what ``Trainer.measure`` returned, on the
    host; ``common`` says how many directions of each layer all agents use."""
    agents, rows = compared(trainer.learner.spec.agents), []
    episodes = from_dict(found["episodes"])
    for seed in range(min(trainer.experiment.run.seeds, most)):
        row: dict[str, Any] = {}
        policy = _policy(trainer, seed_state(states, seed))
        if policy is not None:
            row |= _of_behaviour(policy, _steps_of(episodes, seed), agents)
            row |= _named("private_share", private_share(policy, agents))
            row["mask_distance"] = masks_apart(_masks(spectra, common, seed) or zeroed(policy))
        cosines = {name: np.asarray(table[seed]) for name, table in found["cosines"].items()}
        rows.append(_rounded(row | _of_gradients(cosines)))
    return rows


def _masks(spectra: Spectra, common: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """Masks on directions that are not common. A spectrum that is always on has none."""
    found = {name: np.asarray(on[seed]) for name, (_, on) in spectra.items() if name in common or not on.all()}
    return {name: on[:, common.get(name, 0) :] for name, on in found.items()}


def measure_now(
    trainer: Trainer, state: TrainState, evaluation: int, episodes: int | None = None
) -> list[dict[str, Any]]:
    """A row for each seed of a state of training, on so many episodes with the number of an evaluation; by default on
    four times as many as a run measures on."""
    if episodes is None:
        episodes = 4 * visits(trainer.learner.spec)

    def measure(state: TrainState, evaluation: Any) -> dict[str, Any]:
        return trainer.measure(state, evaluation, episodes)

    if "measure" not in trainer.eager:
        measure = jax.jit(measure, compiler_options=quick_options())
    found, spectra = jax.device_get((measure(state, jnp.int32(evaluation)), trainer.spectra(state)))
    states = state.seeds.state
    return measured(trainer, states, found, spectra, common_directions(trainer.learner.agent(states)))


def _policy(trainer: Trainer, state: Any) -> Policy | None:
    """The policy of one seed; None of a learner that does not say how it acts, or of a network without named layers."""
    learner, experiment = trainer.learner, trainer.experiment
    if not isinstance(learner, Deployable):
        return None
    try:
        return extract(learner, state, Origin(experiment.sharing.method, experiment.learner.algorithm), Meaning())
    except UserError:
        return None


def _of_behaviour(policy: Policy, episodes: dict[str, np.ndarray], agents: np.ndarray) -> dict[str, Any]:
    c = policy.contract
    seen = histories(episodes, memory=c.hidden > 0, kind=c.kind)
    distances = policy_distances(policy, seen, agents)
    by_matrices = policy_distances(policy, seen, agents, own_id=False) if c.ids else distances
    row = {
        "snd": system_diversity(distances),
        "snd_chance": chance_diversity(policy, seen),
        "snd_by_matrices": system_diversity(by_matrices),
        "observations": int(seen.counts.sum()),
    }
    if np.isfinite(distances).all():
        row |= {"agents": agents.tolist(), "distances": distances.tolist()}
    return row


def _of_gradients(cosines: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The mean cosine over pairs of agents, and the share of pairs with a negative one."""
    pairs = {name: table[np.triu_indices(len(table), 1)] for name, table in cosines.items()}
    known = {name: values[np.isfinite(values)] for name, values in pairs.items()}
    known = {name: values for name, values in known.items() if values.size}
    means = _named("gradient_cosine", {name: float(values.mean()) for name, values in known.items()})
    return means | _named("gradients_opposed", {name: float((values < 0).mean()) for name, values in known.items()})


def _named(name: str, values: Mapping[str, float]) -> dict[str, float]:
    return {name if part == WHOLE else f"{name}.{part}": value for part, value in values.items()}


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """In as many digits as a reader needs."""

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(one) for one in value]
        return float(f"{value:.5g}") if isinstance(value, float) else value

    return {name: short(value) for name, value in row.items()}


def _steps_of(episodes: Trajectory, seed: int) -> dict[str, np.ndarray]:
    """One seed's episodes [t, b, ...], step by step."""
    steps = episodes.valid.shape[1]
    obs = {name: getattr(episodes.obs, name)[seed, :steps] for name in ("local", "avail", "role")}
    return {name: np.asarray(value) for name, value in obs.items()} | {
        "action": np.asarray(episodes.action[seed]),
        "valid": np.asarray(episodes.valid[seed]),
    }
