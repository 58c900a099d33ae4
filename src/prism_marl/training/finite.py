"""What to do about a NaN or an infinity: find the first one of a run, and say where it came from."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from prism_marl.experiment.experiment import Experiment
from prism_marl.learners.log import GIVEN, NEVER

GRADIENTS = ("gradient", "grad_norm")  # terms that follow from the losses
RATES = ("lr", "clip", "actor_lr", "critic_lr", "grad_clip")  # settings of learners that tame their steps


class Fault(NamedTuple):
    """The earliest fault of the first seed that has one."""

    seed: int
    step: int
    terms: list[str]  # what failed at that step: what was given, or else losses before gradients
    seeds: int = 1  # how many seeds have a fault


def first_fault(faults: Mapping[str, np.ndarray]) -> Fault | None:
    """What to tell the user, from the counters of all seeds [n]; nothing if all is well."""
    order = sorted(faults, key=lambda term: (term not in GIVEN, term in GRADIENTS, term))
    seeds = np.flatnonzero(np.any([np.asarray(faults[term]) != NEVER for term in order], axis=0))
    if not seeds.size:
        return None
    seed = int(seeds[0])
    found = {term: int(faults[term][seed]) for term in order if faults[term][seed] != NEVER}
    step = min(found.values())
    terms = [term for term, when in found.items() if when == step]
    return Fault(seed, step, [term for term in terms if term in GIVEN] or terms, seeds.size)


def broken_weights(tensors: Mapping[str, np.ndarray]) -> Fault | None:
    """A look at what learning has made of a state before it is saved; a step may be finite and still lead nowhere."""
    broken: dict[int, str] = {}  # by seed: the first array that is
    for name, value in tensors.items():
        if name.startswith("seeds.state.") and np.issubdtype(value.dtype, np.inexact):
            for seed in np.flatnonzero(~np.isfinite(value).reshape(len(value), -1).all(axis=1)):
                broken.setdefault(int(seed), name.split(".", 2)[2])
    if not broken:
        return None
    seed = min(broken)
    return Fault(seed, int(tensors["seeds.steps"][seed]), [broken[seed]], len(broken))


def broken_return(returns: np.ndarray, lost: Any, episodes: int, steps: np.ndarray) -> Fault | None:
    """A look at what an evaluation says. A seed whose games all died has no return, and that is another matter."""
    broken = np.flatnonzero(~np.isfinite(returns) & (lost < episodes))
    if not broken.size:
        return None
    seed = int(broken[0])
    return Fault(seed, int(steps[seed]), ["return of an evaluation"], broken.size)


def explained(fault: Fault, experiment: Experiment) -> str:
    """One sentence: which seed, when, what, what is left and what to do."""
    names, run = fault.terms[:3], experiment.run
    what = " and ".join(", ".join(names).rsplit(", ", 1)) + (" are" if len(names) > 1 else " is")
    rates = [f"learner.{name}" for name in RATES if hasattr(experiment.learner, name)]
    from_task = fault.terms[0] in GIVEN or fault.terms[0].startswith("return")
    remedy = f"the task '{experiment.task}' gives such numbers" if from_task else f"lower {' or '.join(rates)}"
    others = ""
    if 1 < fault.seeds < run.seeds:
        others = f", {fault.seeds} of {run.seeds} seeds have such a fault"
    elif fault.seeds == run.seeds > 1:
        others = ", all seeds have such a fault"
    elif run.seeds > 1:
        others = ", the other seeds are sound and can be trained in a folder of their own"
    return (
        f"seed {run.seed + fault.seed}: {what} not finite at step {fault.step}; "
        f"the last checkpoint is kept{others}; {remedy}"
    )
