"""Beginning with another run's networks: a team that grows, a task that changed, a robot that was damaged.

The agents' networks of the other run are copied into the new folder (``start.safetensors``), and the experiment holds
their digest, so that a folder still decides its numbers alone. What all agents share is taken as it is; of what
belongs to single agents, those that are new begin with fresh numbers. Mixers and critics, optimisers and buffers are
fresh: their sizes follow the team.
"""

import contextlib
from pathlib import Path
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment, Start
from prism_marl.policies.files import LARGEST_FILE
from prism_marl.runs import checkpoint
from prism_marl.runs.folder import START, load_experiment
from prism_marl.runs.trained import load_trained
from prism_marl.sharing.freeze import private_names
from prism_marl.storage.files import check_plain, write_atomically
from prism_marl.storage.sealed import digest, serialise
from prism_marl.training.build import make_learner
from prism_marl.training.state import TrainState
from prism_marl.training.trainer import Trainer

Freeze = Literal["nothing", "shared"]
FREEZE = get_args(Freeze)


def begun_from(source: Path, experiment: Experiment, freeze: Freeze) -> tuple[Experiment, dict[str, np.ndarray]]:
    """The experiment with its start recorded, and the networks [seeds, ...] of the newest checkpoint of a run."""
    if freeze not in FREEZE:
        raise UserError(f"--freeze: there is no '{freeze}'; choose one of {', '.join(FREEZE)}")
    held = load_experiment(source)
    if held.sharing.method != experiment.sharing.method:
        raise UserError(
            f"--from: {source} was trained with {held.sharing.label}, this is {experiment.sharing.label}; "
            f"add --sharing {held.sharing.method}"
        )
    trainer, state, _ = load_trained(source)
    with contextlib.closing(trainer):
        networks = checkpoint.flatten(trainer.learner.agent(state.seeds.state))
    begun = experiment.changed(start=Start(digest=digest(networks, ""), freeze=freeze))
    check_fit(begun, networks)
    return begun, networks


def keep_networks(networks: dict[str, np.ndarray], folder: Path) -> None:
    """Copy the networks into a folder whose run has not begun."""
    if not (folder / "config.json").exists():
        write_atomically(folder / START, serialise(networks, {"digest": digest(networks, "")}))


def kept_networks(experiment: Experiment, folder: Path) -> dict[str, np.ndarray]:
    """The networks that an experiment begins with, from its folder."""
    try:
        networks = safetensors.numpy.load(check_plain(folder / START, folder, LARGEST_FILE).read_bytes())
    except (OSError, ValueError, TypeError, KeyError, MemoryError, safetensors.SafetensorError) as error:
        raise UserError(
            f"{folder / START}: the initial networks of this run cannot be read ({type(error).__name__}); "
            "put the file back or choose another --out",
            code=1,
        ) from None
    if digest(networks, "") != experiment.start.digest:
        raise UserError(
            f"{folder / START}: these are not the initial networks of this run; put the file back or choose "
            "another --out",
            code=1,
        )
    return networks


def check_fit(experiment: Experiment, networks: dict[str, np.ndarray]) -> None:
    """Raise, before anything is compiled, unless networks of another run fit the agents of this one."""
    learner = make_learner(experiment)
    agent = jax.eval_shape(learner.build_agent, jax.random.key(0))
    shapes = {name: leaf.shape for name, leaf in _leaves(agent)}
    own = private_names(agent)
    unmatched = sorted(set(shapes) ^ set(networks))
    if unmatched:
        raise UserError(f"--from: the networks differ in '{unmatched[0]}'; use the settings of that run")
    for name, shape in shapes.items():
        held = networks[name].shape[1:]
        if held != shape and not (name in own and held[1:] == shape[1:]):
            raise UserError(
                f"--from: '{name}' is {list(held)} there and {list(shape)} here: observations, ids, actions or widths "
                "differ. Where observations grow with the team, train both on a task with fixed places, such as "
                "lbf/8x8-3p-2f-places8 and then lbf/8x8-5p-2f-places8"
            )
    if experiment.start.freeze == "shared" and not own:
        label = experiment.sharing.label
        raise UserError(f"--freeze: {label} has no private parameters, so nothing would be trained; leave it out")


def begin_with(trainer: Trainer, state: TrainState, networks: dict[str, np.ndarray]) -> TrainState:
    """A fresh state whose agents, and their targets, have the given networks; seeds take them in turn."""
    check_fit(trainer.experiment, networks)
    fresh = jax.vmap(trainer.learner.agent)(state.seeds.state)
    leaves, structure = jax.tree.flatten(fresh)
    names = [name for name, _ in _leaves(fresh)]
    chosen = [_mixed(networks[name], np.asarray(leaf)) for name, leaf in zip(names, leaves, strict=True)]
    agents = structure.unflatten([jnp.asarray(value) for value in chosen])
    states = jax.vmap(trainer.learner.with_agent)(state.seeds.state, agents)
    if hasattr(states, "target") and hasattr(states.target, "agent"):
        states = eqx.tree_at(lambda s: s.target.agent, states, jax.tree.map(jnp.copy, agents))
    return trainer.with_states(state, states)


def _mixed(held: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Fresh numbers [n, ...], with those of the other run wherever it has some."""
    taken = held[np.arange(len(fresh)) % len(held)].astype(fresh.dtype)
    if taken.shape == fresh.shape:
        return taken
    found, rows = fresh.copy(), min(taken.shape[1], fresh.shape[1])
    found[:, :rows] = taken[:, :rows]
    return found


def _leaves(agent: Any) -> list[tuple[str, Any]]:
    """All arrays by their dotted names, as checkpoints have them."""
    paths = jax.tree_util.tree_leaves_with_path(agent)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in paths]
