"""Checks of code from outside this package, before anything is compiled: each fault is one sentence.

``check_method``, ``check_env`` and ``check_learner`` can be called by themselves, in a test of your own say; ``run``
calls them for every method, task and learner that does not live in this package. They take a second or two.
"""

import contextlib

from prism_marl import envs
from prism_marl.errors import UserError
from prism_marl.experiment.checks.env import check_env
from prism_marl.experiment.checks.learner import check_learner
from prism_marl.experiment.checks.method import check_method
from prism_marl.experiment.experiment import Experiment
from prism_marl.learners import LEARNERS
from prism_marl.registration import is_foreign
from prism_marl.sharing import METHODS

__all__ = ["check_env", "check_learner", "check_method", "check_user_code"]

ROWS = 3  # of an environment that plays in rows


def check_user_code(experiment: Experiment) -> None:
    """Check those parts of an experiment that do not live in this package. Raises ``UserError``."""
    task, run = experiment.task, experiment.run
    if is_foreign(envs.builder(envs.family_of(task))):
        _check_task(task)
    spec, width = envs.describe(task), experiment.network.width
    settings, sharing = experiment.learner, experiment.sharing
    learner = settings.learner(sharing, spec, width=width, rows=run.envs, steps=run.steps)
    if is_foreign(type(sharing)):
        check_method(sharing, spec, learner=learner, width=width)
    if is_foreign(type(settings)) or is_foreign(type(learner)):
        check_learner(learner)
    _check_registered("sharing", type(sharing), METHODS.get(sharing.method))
    _check_registered("learners", type(settings), LEARNERS.get(settings.algorithm))


def _check_registered(room: str, cls: type, held: type | None) -> None:
    """A run folder is read by the names in its config."""
    if held is not cls:
        raise UserError(f"{cls.__name__}: is not registered; call prism_marl.{room}.register({cls.__name__}) before")


def _check_task(task: str) -> None:
    family = envs.family_of(task)
    if family.make is not None:
        env = envs.make(task)
    elif family.python is not None:
        env = envs.make_python(task)
    else:
        env = envs.make_rows(task, ROWS)
    with contextlib.ExitStack() as stack:
        if family.make is None:
            stack.callback(env.close)  # pyright: ignore[reportAttributeAccessIssue]
        check_env(env, spec=family.shape(task.partition("/")[2]) if family.shape else None)
