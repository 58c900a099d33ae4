"""From an experiment to its trainer: which learner, and which collector plays."""

from prism_marl import envs
from prism_marl.collect.base import Collector
from prism_marl.collect.compiled import CompiledCollector
from prism_marl.collect.host import HostCollector
from prism_marl.experiment.experiment import Experiment
from prism_marl.learners.base import Learner
from prism_marl.sharing.freeze import private_only
from prism_marl.training.trainer import Trainer


def make_trainer(experiment: Experiment) -> Trainer:
    """The trainer of an experiment: any learner, wherever the task's environments live."""
    learner = make_learner(experiment)
    collector = make_collector(experiment)
    collector.open(learner)
    return Trainer(experiment, learner, collector)


def make_learner(experiment: Experiment) -> Learner:
    """The learner of an experiment; with its shared part frozen where the experiment says so."""
    run, sharing = experiment.run, experiment.sharing
    return experiment.learner.learner(
        private_only(sharing) if experiment.start.freeze == "shared" else sharing,
        envs.describe(experiment.task),
        width=experiment.network.width,
        rows=run.envs,
        steps=run.steps,
    )


def make_collector(experiment: Experiment) -> Collector:
    """Compiled with the training program where the environment is written in JAX, otherwise rows on the host."""
    task, run = experiment.task, experiment.run
    if envs.is_compiled(task):
        return CompiledCollector(envs.make(task), run.seed, run.seeds, run.envs)
    numbers = range(run.seed, run.seed + run.seeds)
    return HostCollector(envs.rows_builder(task, run.patience), numbers, run.envs)
