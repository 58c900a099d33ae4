"""Parameter sharing in multi-agent reinforcement learning, in JAX: 21 sharing methods, six learners, many tasks.

Train a team, read its learning curve, evaluate it again, and write a report:

    import prism_marl as pm

    run = pm.train("roles/4", sharing="prism", seeds=2, out="runs/first")
    steps, returns = run.curve("return").steps, run.curve("return").values   # [points], [seeds, points]
    pm.evaluate("runs/first", episodes=200)
    pm.report(["runs/first"], out="runs/page")

Use the trained policy elsewhere; ``load_policy`` needs numpy and no JAX:

    policy = pm.load_policy("runs/first", seed=0)
    memory = policy.reset(batch=32)
    action, memory = policy.act(obs, memory, avail=mask)
    pm.export("runs/first", "policy.onnx")

You choose three things: how agents share parameters (``pm.sharing``), the learning algorithm (``pm.learners``) and the
task (``pm.envs``). ``prism-marl list`` lists all of them. The command ``prism-marl`` does the same as these functions.

You can also use the sharing layers in your own JAX code:

    layer = pm.sharing.Prism(common=0.5).linear(8, 32, identities=4, key=key, kind="hidden", depth=0)

Submodules are imported when they are first used, so ``import prism_marl`` is fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prism_marl import envs, learners, sharing
    from prism_marl.api import Run, evaluate, export, extend, load_run, make_experiment, report, train
    from prism_marl.errors import UserError
    from prism_marl.experiment.experiment import Experiment
    from prism_marl.policies import Policy
    from prism_marl.runs.diversity import diversity
    from prism_marl.runs.policies import load_policy

__version__ = "0.1.0"

_HOME = {
    "Experiment": "prism_marl.experiment.experiment",
    "Policy": "prism_marl.policies",
    "Run": "prism_marl.api",
    "UserError": "prism_marl.errors",
    "diversity": "prism_marl.runs.diversity",
    "evaluate": "prism_marl.api",
    "export": "prism_marl.api",
    "extend": "prism_marl.api",
    "load_policy": "prism_marl.runs.policies",
    "load_run": "prism_marl.api",
    "make_experiment": "prism_marl.api",
    "report": "prism_marl.api",
    "train": "prism_marl.api",
}
_PACKAGES = ("envs", "learners", "sharing")

__all__ = [
    "Experiment",
    "Policy",
    "Run",
    "UserError",
    "diversity",
    "envs",
    "evaluate",
    "export",
    "extend",
    "learners",
    "load_policy",
    "load_run",
    "make_experiment",
    "report",
    "sharing",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"prism_marl.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'prism_marl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
