"""Do the parts of a learner fit each other? Its functions are traced as the trainer calls them; nothing runs."""

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.errors import UserError
from prism_marl.experiment.checks.calls import difference, guarded, layout
from prism_marl.learners.base import Clock, Collection, Learner, Mode, Trajectory
from prism_marl.learners.log import Log, empty_log
from prism_marl.learners.seeds import map_seeds
from prism_marl.sharing.base import Experience
from prism_marl.types import Observation

MODES: tuple[Mode, ...] = ("random", "explore", "greedy")


def check_learner(learner: Learner) -> None:
    """Check a learner. Raises ``UserError``."""
    who = type(learner).__name__
    _check_collection(learner, who)
    for name in ("metrics", "checks"):
        found = guarded(f"{who}.{name}", getattr, learner, name)
        if not isinstance(found, tuple) or not all(isinstance(word, str) for word in found):
            raise UserError(f"{who}.{name}: {found!r} is not a tuple of names; return one, such as ('loss',)")
    key = jax.random.key(0)
    state = guarded(f"{who}.init", jax.eval_shape, learner.init, key)
    clock = jax.eval_shape(lambda: Clock(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), learner.counters()))
    _check_keys(learner, state, clock, who)
    memory = _check_act(learner, state, who)
    batch = _batch(learner, memory)
    buffer = _check_buffer(learner, batch, who)
    _check_update(learner, state, buffer, batch, clock, who)
    _check_agent(learner, state, who)


def _check_collection(learner: Learner, who: str) -> None:
    found = guarded(f"{who}.collection", getattr, learner, "collection")
    if not isinstance(found, Collection):
        raise UserError(f"{who}.collection: is a {type(found).__name__}; return a learners.base.Collection")
    if found.unit not in ("episodes", "steps"):
        raise UserError(f"{who}.collection: unit {found.unit!r} is unknown; write 'episodes' or 'steps'")
    if not isinstance(found.length, int) or found.length < 1:
        raise UserError(f"{who}.collection: length {found.length!r} is not a positive number of steps; give one")
    if found.unit == "episodes" and found.length != learner.spec.horizon:
        raise UserError(
            f"{who}.collection: length {found.length} is not the horizon of the task; use {learner.spec.horizon}"
        )
    if found.warmup < 0:
        raise UserError(f"{who}.collection: warmup {found.warmup} is negative; the least is 0")
    try:
        hash(learner)
    except TypeError:
        raise UserError(
            f"{who}: cannot be hashed, and compiled programs are kept by it; make it a frozen dataclass"
        ) from None


def _check_keys(learner: Learner, state: Any, clock: Any, who: str) -> None:
    purposes: tuple[Literal["collect", "change"], ...] = ("collect", "change")
    for purpose in purposes:
        what = f"{who}.key for '{purpose}'"
        after, key = guarded(what, jax.eval_shape, functools.partial(learner.key, purpose=purpose), state, clock)
        _refuse_change(state, after, what, "state")
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.shape != ():
            raise UserError(f"{what}: returns {key.dtype}{list(key.shape)} and not one key; return (state, key)")


def _check_act(learner: Learner, state: Any, who: str) -> Any:
    """The shapes of the memory before the first step."""
    spec, rows = learner.spec, learner.rows
    policy = guarded(f"{who}.policy", jax.eval_shape, learner.policy, state)
    memory = guarded(f"{who}.memory", jax.eval_shape, lambda policy: learner.memory(policy, rows), policy)
    parts: list[Any] = [
        jax.ShapeDtypeStruct((rows, *sizes), kind)
        for sizes, kind in (
            ((spec.agents, spec.observation), jnp.float32),
            ((spec.state,), jnp.float32),
            ((spec.agents, spec.actions), bool),
            ((spec.agents,), jnp.int32),
        )
    ]
    template, zero = _checked_template(learner), jax.ShapeDtypeStruct((), jnp.int32)
    discrete = spec.kind == "discrete"
    sizes = (rows, spec.agents) if discrete else (rows, spec.agents, spec.actions)
    for mode in MODES:
        what = f"{who}.act in mode '{mode}'"
        after, action, extras = guarded(
            what,
            jax.eval_shape,
            functools.partial(learner.act, mode=mode),
            *(policy, memory, Observation(*parts), jax.random.key(0), zero),
        )
        _refuse_change(memory, after, what, "memory")
        wanted = jnp.integer if discrete else jnp.floating
        if action.shape != sizes or not jnp.issubdtype(action.dtype, wanted):
            name = "integers" if discrete else "floats"
            raise UserError(
                f"{what}: actions are {action.dtype}{list(action.shape)}; return {name} of shape {list(sizes)}"
            )
        _check_recorded(template, action, extras, what, who)
    return memory


def _check_recorded(template: Trajectory, action: Any, extras: Any, what: str, who: str) -> None:
    """``template`` against what ``act`` returns [b, ...]: recorded are [t, ...] of one row."""
    for name, leaves, values in (("action", template.action, action), ("extras", template.extras, extras)):
        one, other = jax.tree.structure(leaves), jax.tree.structure(values)
        if one != other:
            raise UserError(
                f"{who}.template: {name} has the structure {one}, but {what} returns {other}; make them agree"
            )
        for leaf, value in zip(jax.tree.leaves(leaves), jax.tree.leaves(values), strict=True):
            skipped = 0 in leaf.shape
            fits = leaf.shape[1:] == value.shape[1:] and np.dtype(leaf.dtype).kind == np.dtype(value.dtype).kind
            if not skipped and not fits:
                raise UserError(
                    f"{who}.template: {name} is {leaf.dtype}{list(leaf.shape)} for one row, but {what} returns "
                    f"{value.dtype}{list(value.shape)} for all rows; make them agree"
                )


def _batch(learner: Learner, memory: Any) -> Trajectory:
    """Shapes of one collection as a learner sees it: [t, b, ...]."""
    template, rows = learner.template(), learner.rows
    batch = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((leaf.shape[0], rows, *leaf.shape[1:]), leaf.dtype), template
    )
    return batch._replace(memory=memory if learner.collection.unit == "steps" else ())


def _checked_template(learner: Learner) -> Trajectory:
    """Everything has the length of a collection; observations of episodes have one slot more."""
    who, collection = type(learner).__name__, learner.collection
    template = guarded(f"{who}.template", learner.template)
    if not isinstance(template, Trajectory):
        raise UserError(f"{who}.template: is a {type(template).__name__}; return a learners.base.Trajectory of shapes")
    if (template.next_obs is None) != (collection.unit == "episodes"):
        raise UserError(f"{who}.template: next_obs belongs to 'steps' alone; this learner collects '{collection.unit}'")
    for name in ("obs", "next_obs", "action", "reward", "terminated", "truncated", "valid", "extras"):
        length = collection.length + (name == "obs" and collection.unit == "episodes")
        for leaf in jax.tree.leaves(getattr(template, name)):
            if 0 not in leaf.shape and leaf.shape[0] != length:
                raise UserError(f"{who}.template: {name} has {leaf.shape[0]} slots along time; give it {length}")
    return template


def _check_buffer(learner: Learner, batch: Trajectory, who: str) -> Any:
    buffer = guarded(f"{who}.buffer", jax.eval_shape, learner.buffer)
    after = guarded(f"{who}.add", jax.eval_shape, learner.add, buffer, batch)
    _refuse_change(buffer, after, f"{who}.add", "buffer")
    found = guarded(f"{who}.experience", jax.eval_shape, learner.experience, buffer)
    if not isinstance(found, Experience):
        raise UserError(f"{who}.experience: returns a {type(found).__name__}; return a sharing.base.Experience")
    return buffer


def _check_update(learner: Learner, state: Any, buffer: Any, batch: Any, clock: Any, who: str) -> None:
    """Traced under ``vmap`` over seeds, as the trainer does; a log that listens tells which metrics are added."""
    added: set[str] = set()

    class Listening(Log):
        def add(self, metrics: Any, step: Any, weight: int = 1) -> "Log":
            added.update(metrics)
            unknown = sorted(set(metrics) - set(self.sums))
            if unknown:
                raise UserError(f"{who}.metrics: update adds '{unknown[0]}', which is not among them; add the name")
            return super().add(metrics, step, weight)

        def check(self, finite: Any, step: Any) -> "Log":
            unknown = sorted(set(finite) - set(self.faults))
            if unknown:
                raise UserError(f"{who}.checks: update checks '{unknown[0]}', which is not among them; add the name")
            return super().check(finite, step)

    log = jax.eval_shape(lambda: Listening(*empty_log(learner.metrics, learner.checks)))
    given = (state, buffer, batch, log, jax.ShapeDtypeStruct((), jnp.int32))
    seeds = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype), given)
    update = map_seeds(learner.update, (0, 0, 0, 0, 0, None), (0, 0, None))
    after, log_after, clock_after = guarded(f"{who}.update", jax.eval_shape, update, *seeds, clock)
    _refuse_change(seeds[0], after, f"{who}.update", "state")
    _refuse_change(seeds[3], log_after, f"{who}.update", "log")
    _refuse_change(clock, clock_after, f"{who}.update", "clock")
    silent = sorted(set(learner.metrics) - added)
    if silent:
        raise UserError(
            f"{who}.metrics: update never adds '{silent[0]}' to the log; use log.add, or leave the name out"
        )


def _check_agent(learner: Learner, state: Any, who: str) -> None:
    agent = guarded(f"{who}.agent", jax.eval_shape, learner.agent, state)
    fresh = guarded(f"{who}.build_agent", jax.eval_shape, learner.build_agent, jax.random.key(0))
    _refuse_change(fresh, agent, f"{who}.agent", "network of build_agent")
    after = guarded(f"{who}.with_agent", jax.eval_shape, learner.with_agent, state, agent)
    _refuse_change(state, after, f"{who}.with_agent", "state")
    row = guarded(f"{who}.row", learner.row, 0)
    if not isinstance(row, dict) or not all(isinstance(value, int | float) for value in row.values()):
        raise UserError(f"{who}.row: return a dict of plain numbers by name; {{}} if there are none")


def _refuse_change(before: Any, after: Any, what: str, thing: str) -> None:
    if layout(before) != layout(after):
        raise UserError(
            f"{what}: returns another {thing} than it gets ({difference(before, after)}); keep all shapes and types"
        )
