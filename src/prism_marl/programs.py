"""The compiled parts of one run: each compiled once, ahead of time, so that compilation never hides in a speed."""

import time
from dataclasses import dataclass, field
from typing import Any

import jax

from prism_marl.sinks import Monitor
from prism_marl.trainer import Trainer

DONATED = ("learn", "collect", "prepare", "refresh")  # these consume the state that they are given


@dataclass
class Programs:
    """What a trainer offers, ready to be called, and the seconds that this took."""

    trainer: Trainer
    monitor: Monitor
    places: Any = None  # of the state's arrays, where there are several devices
    seconds: float = 0.0
    compiled: dict[str, Any] = field(default_factory=dict)

    def init(self) -> Any:
        """Fresh state. It compiles on the way, and drawing itself is a matter of milliseconds, so all of it counts."""
        started = time.perf_counter()
        state = jax.block_until_ready(self.trainer.init())
        self.seconds += time.perf_counter() - started
        return state

    def get(self, name: str, *arguments: Any) -> Any:
        """The program of a name, for arguments of these shapes."""
        if name not in self.compiled:
            self.compiled[name] = self._compile(name, arguments)
        return self.compiled[name]

    def place(self, state: Any) -> Any:
        """A fresh or restored state, with every array where it belongs."""
        return state if self.places is None else jax.device_put(state, self.places)

    def _compile(self, name: str, arguments: tuple[Any, ...]) -> Any:
        functions = {
            "learn": lambda state, goal: self.trainer.advance(state, goal, learn=True),
            "collect": lambda state, goal: self.trainer.advance(state, goal, learn=False),
            "evaluate": self.trainer.evaluate,
            "prepare": self.trainer.prepare,
            "refresh": self.trainer.refresh,
            "spectra": self.trainer.spectra,
        }
        if name == "learn":
            self.monitor.note("compiling ...")
        started = time.perf_counter()
        if name in self.trainer.eager or (name == "prepare" and not self.trainer.prepares):
            program = functions[name]
            self.trainer.warm(name, arguments[0])
        else:
            donated, places = ((0,), self.places) if name in DONATED else ((), None)
            compiled = jax.jit(functions[name], donate_argnums=donated, out_shardings=places)
            program = compiled.lower(*arguments).compile()
        self.seconds += time.perf_counter() - started
        return program
