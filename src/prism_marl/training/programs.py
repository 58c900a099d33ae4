"""The compiled parts of one run: each compiled once, ahead of time, so that compilation never hides in a speed."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax

from prism_marl.monitor import Monitor
from prism_marl.training.compiling import compile_aside
from prism_marl.training.export_cache import ExportCache
from prism_marl.training.state import SeedState, TrainState
from prism_marl.training.trainer import Trainer

Guard = Callable[[], contextlib.AbstractContextManager[None]]
QUICK = ("measure",)  # these run rarely and for milliseconds, so compiling them is what they cost
DONATED = ("learn", "collect", "prepare", "refresh")  # these consume the state that they are given and return the next


@dataclass
class Programs:
    """What a trainer offers, ready to be called, and the seconds that this took."""

    trainer: Trainer
    monitor: Monitor
    template: TrainState  # shapes only
    shardings: Any = None  # of the state's arrays, where there are several devices
    export_cache: ExportCache | None = None  # programs of earlier starts
    seconds: float = 0.0
    compiled: dict[str, Any] = field(default_factory=dict)
    guard: Guard = contextlib.nullcontext  # what stands around compiling

    def init(self) -> Any:
        """Fresh state. It compiles on the way, and drawing itself is a matter of milliseconds, so all of it counts."""
        started = time.perf_counter()
        with self.guard():
            state = jax.block_until_ready(self.trainer.init(self._draw))
        self.seconds += time.perf_counter() - started
        return state

    def get(self, name: str, *arguments: Any) -> Any:
        """The program of a name, for arguments of these shapes."""
        if name not in self.compiled:
            with self.guard():
                self.compiled[name] = self._compile(name, arguments)
        return self.compiled[name]

    def put(self, state: Any) -> Any:
        """A fresh or restored state, with every array where it belongs."""
        return state if self.shardings is None else jax.device_put(state, self.shardings)

    def _compile(self, name: str, arguments: tuple[Any, ...]) -> Any:
        functions = {
            "learn": lambda state, goal: self.trainer.advance(state, goal, learn=True),
            "collect": lambda state, goal: self.trainer.advance(state, goal, learn=False),
            "evaluate": self.trainer.evaluate,
            "prepare": self.trainer.prepare,
            "refresh": self.trainer.refresh,
            "spectra": self.trainer.spectra,
            "measure": self.trainer.measure,
        }
        if name == "learn":
            self.monitor.note("compiling ...")
        started = time.perf_counter()
        if name in self.trainer.eager or (name == "prepare" and not self.trainer.prepares):
            program = functions[name]
            self.trainer.warm(name, arguments[0])
        else:
            template = arguments[0] if name in DONATED else None
            program = self._built(name, functions[name], arguments, template)
        self.seconds += time.perf_counter() - started
        return program

    def _draw(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        seeds = self.template.seeds
        networks = SeedState(seeds.state, seeds.buffer, (), seeds.steps, seeds.log)
        template = {"networks": networks, "rows": seeds.env}.get(name)
        return self._built(name, function, arguments, template)(*arguments)

    def _built(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], template: Any) -> Any:
        donated = name in DONATED
        if self.export_cache and self.shardings is None:
            program = self.export_cache.program(
                name, function, arguments, donate=donated, template=template, quick=name in QUICK
            )
            if program is not None:
                return program
        shardings = self.shardings if donated else None
        compiled = jax.jit(function, donate_argnums=(0,) if donated else (), out_shardings=shardings)
        return compile_aside(compiled.lower(*arguments), quick=name in QUICK)
