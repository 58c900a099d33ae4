"""The only Python loop: advance to the next stop, evaluate, write rows, checkpoint.

Killed at any moment, a run continues from its last checkpoint and ends with the same rows and weights: the checkpoint
holds all state and a seal of the row files, and rows written after it are cut and written again. Stretches between
stops are cut into pieces of a few seconds for the progress bar and for Ctrl-C; where they are cut changes nothing,
because each piece ends on a whole iteration.
"""

import contextlib
import math
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.collect.base import LOST
from prism_marl.errors import UserError
from prism_marl.experiment.checks import check_user_code
from prism_marl.experiment.experiment import Experiment
from prism_marl.measures.record import measured
from prism_marl.monitor import Monitor, Quiet
from prism_marl.runs import checkpoint, history
from prism_marl.runs.exporting import write_policies
from prism_marl.runs.folder import (
    locked,
    machine_facts,
    owner,
    refuse_lost_checkpoints,
    write_best_replay,
    write_config,
)
from prism_marl.runs.machine import full_memory_explained
from prism_marl.runs.masks import Layers
from prism_marl.runs.memory import check_memory
from prism_marl.runs.rows import ROW_FILES, Rows, column, noted
from prism_marl.runs.signals import Stop, StopNow, stop_signals
from prism_marl.runs.spectra import SpectraRecorder
from prism_marl.runs.timing import Stopwatch
from prism_marl.runs.warm_start import begin_with, kept_networks
from prism_marl.storage.files import HeldFolder
from prism_marl.training.build import make_trainer
from prism_marl.training.export_cache import open_export_cache
from prism_marl.training.finite import Fault, broken_return, broken_weights, explained, first_fault
from prism_marl.training.programs import Programs
from prism_marl.training.sharding import seed_shardings
from prism_marl.training.state import TrainState, packed
from prism_marl.training.trainer import Trainer

MEASURED_SEEDS = 32  # of a run with many seeds, so many are measured: networks are read one by one
PIECE_SECONDS = 2.0  # how long a stretch may run before the progress bar moves and Ctrl-C is heard


def run(
    experiment: Experiment,
    folder: Path,
    monitor: Monitor | None = None,
    cache: Path | None = None,
    *,
    strict: bool = False,
    patience: float = 0.0,
) -> Path:
    """Train an experiment in a folder, from its last checkpoint if there is one. Returns the folder. ``cache`` is where
    lowered programs are kept for the next start. With ``strict`` a run does not go on where its numbers could change.
    ``patience`` is how many seconds to wait for a process that still saves in the folder."""
    experiment.validate()
    check_user_code(experiment)
    trainer = make_trainer(experiment)
    template = check_memory(trainer)
    with (
        contextlib.closing(trainer),
        locked(folder, patience) as held,
        stop_signals() as stop,
        full_memory_explained(),
    ):
        write_config(experiment, folder, held)
        checkpoint.remove_leftovers(folder)
        with contextlib.closing(checkpoint.Writer(folder / "checkpoints", owner(folder), held)) as writer:
            monitor = monitor or Quiet()
            spread, kept = seed_shardings(trainer, template, monitor), open_export_cache(cache, trainer)
            programs = Programs(trainer, monitor, template, spread, kept, guard=stop.while_compiling)
            _Session(trainer, folder, monitor, stop, writer, template, programs, held, strict).run()
    return folder


@dataclass
class _Session:
    trainer: Trainer
    folder: Path
    monitor: Monitor
    stop: Stop
    writer: checkpoint.Writer
    template: TrainState  # shapes only
    programs: Programs
    held: HeldFolder
    strict: bool = False  # refuse to go on where numbers could change
    evaluation: int = 0  # number of the next evaluation
    kept: int = 0  # iteration of the newest checkpoint
    rate: float = 0.0  # steps/s of the latest piece
    learning: bool = False  # what that piece was: collecting alone can be a hundred times as fast
    shown: str = ""

    def __post_init__(self) -> None:
        self.rows = {name: Rows(self.folder / f"{name}.jsonl", self.held) for name in ROW_FILES}
        self.watch = Stopwatch(lambda: self.programs.seconds, self.trainer.dropped)

    def run(self) -> None:
        self.monitor.progress(0, 0.0, "")
        state = self._restore()
        self.monitor.recorded(self.folder)
        settings = self.trainer.experiment.run
        total, every = settings.steps, settings.eval_every
        last = math.ceil(total / every)  # evaluation 0 is before training, number k at k * every, the last at the end
        if self._finished:
            return
        while self.evaluation <= last:
            before = self.trainer.extra if self.evaluation else 0  # steps on top of the budget
            state = self._reach(state, before + min(total, self.evaluation * every))
            state = self._evaluate(state)
            done = self.evaluation - 1
            if done % settings.save_every == 0 or done == last:
                self._save(state)
            if done == 0:
                self.writer.wait()  # so that later rows never stand in a folder without a checkpoint
        write_best_replay(self.trainer, state, self.folder, self.held)
        write_policies(self.trainer, state, self.folder, self._number(state), self.held)
        if lost := self.trainer.dropped():
            self.monitor.note(f"{lost} episodes were dropped because their game died or hung; timing.jsonl says when")
        self.writer.wait()
        checkpoint.write_atomically(self.folder / "done", b"", self.held)

    def _reach(self, state: TrainState, goal: int) -> TrainState:
        """Train until every seed has taken ``goal`` steps, with the sharing method's own stops on the way."""
        sharing, warmup = self.trainer.experiment.sharing, self.trainer.warmup
        total = self.trainer.extra + self.trainer.experiment.run.steps
        self.watch.start(int(self._steps(state).sum()))
        while True:
            now, pretraining = self._steps(state).min(), min(warmup + sharing.pretraining_steps(), total)
            if now >= pretraining and not int(state.prepared):
                state = self._call("prepare", state)
            every = sharing.refresh_interval()
            due = int(state.refreshed) + every if every else total + 1
            if every and now >= due and total - now > every:
                state = self._call("refresh", state)
                continue
            if now >= goal:
                break
            learning = bool(int(state.prepared))
            stops = [goal, due] if learning else [goal, pretraining]
            state = self._piece(state, min(stop for stop in stops if stop > now), learn=learning)
        self.watch.measure(int(self._steps(state).sum()))
        if row := self.watch.row(self.evaluation):
            self.rows["timing"].append(row)
        return state

    def _piece(self, state: TrainState, goal: int, *, learn: bool) -> TrainState:
        steps = self._steps(state)
        rate = self.rate if learn == self.learning else 0.0
        aim = min(goal, int(steps.min() + max(rate * PIECE_SECONDS / steps.size, 64)))
        call = self._program("learn" if learn else "collect", state, jnp.int32(aim))
        started = time.perf_counter()
        state = jax.block_until_ready(call(state, jnp.int32(aim)))
        after = self._steps(state)
        self.rate, self.learning = float((after - steps).sum()) / max(time.perf_counter() - started, 1e-6), learn
        self.monitor.progress(int(after.min()), self.rate, self.shown)
        self._refuse_nonsense(first_fault(jax.device_get(state.seeds.log.faults)))
        if self.stop.asked:
            self._leave(state)
        return state

    def _leave(self, state: TrainState) -> NoReturn:
        """Stop as a signal has asked, with all that was trained on the disk."""
        steps = self._steps(state)
        self.watch.measure(int(steps.sum()))
        if int(state.clock.iteration) > self.kept:
            self._save(state)
        self.writer.wait()
        raise UserError(f"stopped at step {int(steps.min())}; the same command continues from there", code=130)

    def _evaluate(self, state: TrainState) -> TrainState:
        values = jax.device_get(self._call("evaluate", state, jnp.int32(self.evaluation)))
        layers = self._spectra(state)  # before any row is written: compiling may be interrupted
        differences = self._measured(state, layers)
        sums = jax.device_get(state.seeds.log.sums)
        updates = int(state.clock.summed)
        steps = self._steps(state)
        means = {name: value / max(updates, 1) for name, value in sums.items()} if updates else {}
        lost = values.pop(LOST, 0)
        run = self.trainer.experiment.run
        self._refuse_nonsense(broken_return(values["return"], lost, run.eval_episodes, steps))
        numbered = enumerate(steps.tolist(), run.seed)
        head = [{"evaluation": self.evaluation, "seed": seed, "step": step} for seed, step in numbered]
        self.rows["eval"].append([row | column(values, seed) for seed, row in enumerate(head)])
        if means:
            means |= self._recorder.masks_by_start(layers)
            self.rows["train"].append(
                [
                    row | column(means, seed) | self.trainer.learner.row(int(steps[seed]))
                    for seed, row in enumerate(head)
                ]
            )
        if differences:
            self.rows["diversity"].append([row | found for row, found in zip(head, differences, strict=False)])
        self.monitor.recorded(self.folder)
        self._recorder.write(self.evaluation, steps.tolist(), layers)
        loss = f"  loss {np.mean(means['loss']):.4f}" if "loss" in means else ""
        self.shown = f"return {np.mean(values['return']):.3f}{loss}"
        self.monitor.progress(int(steps.min()), self.rate, self.shown)
        self.evaluation += 1
        fresh = jax.tree.map(jnp.zeros_like, (state.seeds.log.sums, state.clock.summed))
        return eqx.tree_at(lambda s: (s.seeds.log.sums, s.clock.summed), state, fresh)

    def _refuse_nonsense(self, fault: Fault | None) -> None:
        if fault is not None:
            raise UserError(explained(fault, self.trainer.experiment), code=1)

    @cached_property
    def _recorder(self) -> SpectraRecorder:
        agent = self.trainer.learner.agent(self.template.seeds.state)
        return SpectraRecorder(self.folder, agent, self.trainer.experiment.run.evaluations, self.held)

    def _spectra(self, state: TrainState) -> Layers:
        """Masked singular values and masks of every layer that has them."""
        return jax.device_get(self._call("spectra", state))

    def _measured(self, state: TrainState, layers: Layers) -> list[dict[str, Any]]:
        """How far the agents of each seed differ, where it is time to measure it."""
        if not self.trainer.experiment.run.measured(self.evaluation):
            return []
        found = jax.device_get(self._call("measure", state, jnp.int32(self.evaluation)))
        return measured(self.trainer, state.seeds.state, found, layers, self._recorder.common, MEASURED_SEEDS)

    @property
    def _finished(self) -> bool:
        """Whether nothing is left to compute: such a run stays as it is."""
        evaluations = self.trainer.experiment.run.evaluations
        return self.evaluation >= evaluations and (self.folder / "done").exists()

    def _restore(self) -> TrainState:
        found = checkpoint.load_newest(self.folder / "checkpoints", self.template, self.writer.owner, self._lost_rows)
        if found is None:
            refuse_lost_checkpoints(self.folder)
            for rows in self.rows.values():
                rows.cut(0)
            history.begin(self.folder, machine_facts(self.trainer.experiment), self.held)
            return self.programs.put(self._begun(self.programs.init()))
        state, notes, complaints = found
        for complaint in complaints:
            self.monitor.note(f"{complaint}; going back to the one before")
        self.evaluation, seals = noted(notes)
        self.watch.restore(notes.get("stretch"))
        self.kept = int(state.clock.iteration)
        reached = int(self._steps(state).min())
        if not self._finished:
            facts = machine_facts(self.trainer.experiment)
            if said := history.resume(self.folder, reached, facts, self.held, strict=self.strict):
                self.monitor.note(said)
        for name, rows in self.rows.items():
            rows.cut(seals[name][0])
        self.monitor.note(f"continuing from step {reached:,}")
        self.monitor.progress(reached, 0.0, "")
        return self.programs.put(state)

    def _begun(self, state: TrainState) -> TrainState:
        """A fresh state, with the networks of another run where the experiment begins with them."""
        experiment = self.trainer.experiment
        if not experiment.start.digest:
            return state
        return begin_with(self.trainer, state, kept_networks(experiment, self.folder))

    def _save(self, state: TrainState) -> None:
        """Named by the iteration, which grows with every piece; evaluation 0 is iteration 0."""
        tensors = checkpoint.flatten(packed(state))
        self._refuse_nonsense(broken_weights(tensors))
        seals = {name: rows.seal() for name, rows in self.rows.items()}
        notes = {"evaluation": self.evaluation, "rows": seals, "stretch": self.watch.note()}
        self.writer.save(self._number(state), tensors, notes)
        self.kept = int(state.clock.iteration)

    def _number(self, state: TrainState) -> int:
        """Of the checkpoint of this state."""
        return 1000 * int(state.clock.iteration) + min(self.evaluation, 999)

    def _lost_rows(self, notes: dict[str, Any]) -> str | None:
        try:
            _, seals = noted(notes)
        except UserError as error:
            return str(error)
        complaints = [rows.complaint(seals[name]) for name, rows in self.rows.items()]
        return next((complaint for complaint in complaints if complaint), None)

    def _call(self, name: str, state: TrainState, *arguments: Any) -> Any:
        program = self._program(name, state, *arguments)
        return jax.block_until_ready(program(state, *arguments))  # failures show up here

    def _program(self, name: str, state: TrainState, *arguments: Any) -> Any:
        try:
            return self.programs.get(name, state, *arguments)
        except StopNow:
            self._leave(state)

    @staticmethod
    def _steps(state: TrainState) -> np.ndarray:
        return np.asarray(jax.device_get(state.seeds.steps))
