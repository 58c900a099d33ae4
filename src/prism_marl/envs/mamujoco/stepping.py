"""Steps one row. Also the program of a process that steps rows of a batch in shared memory.

The program is started by its path and imports only the engine and numpy, so that a process starts quickly and stays
small. It reads numbers of rows, steps each row and sends its number back; it ends when its input ends.
"""

import importlib
import json
import mmap
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

NUMBER = np.dtype(np.int32)  # of a row, as it is sent between processes


def workspace(engine: Any, model: Any) -> Any:
    """The engine's working memory, without its timers.

    Making one turns on timers for each part of the engine. They read the clock hundreds of times in a step, which takes
    a tenth to a fifth of the time, or more where reading the clock is a system call. A timer set by the user stays.
    """
    data = engine.MjData(model)
    if engine.get_mjcb_time() is None:
        engine.set_mjcb_time(None)
    return data


def stepper(
    engine: Any, model: Any, states: np.ndarray, reached: np.ndarray, *, layout: int, frames: int, body: int | None
) -> Callable[[Any, Iterable[int]], None]:
    """A function that steps rows, given a workspace of the engine.

    Attributes are looked up once, because Python holds its lock during look-ups.
    """
    rows = list(states)
    set_state, step, get_state = engine.mj_setState, engine.mj_step, engine.mj_getState

    def advance(data: Any, remaining: Iterable[int]) -> None:
        for row in remaining:
            state = rows[row]
            set_state(model, data, state, layout)
            step(model, data, frames)
            get_state(model, data, state, layout)
            if body is not None:
                reached[row] = data.xpos[body, 0]

    return advance


def shared_arrays(memory: mmap.mmap, rows: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The states [rows, size] and the positions [rows] that follow them in a piece of memory."""
    numbers = np.frombuffer(memory, np.float64, rows * (size + 1))
    return numbers[: rows * size].reshape(rows, size), numbers[rows * size :]


def main(text: str) -> None:
    """Step rows until the input ends; the first answer says that the model has been read."""
    mujoco: Any = importlib.import_module("mujoco")
    order = json.loads(text)
    model = mujoco.MjModel.from_binary_path(order["model"])
    states, reached = shared_arrays(mmap.mmap(order["memory"], 0), order["rows"], order["size"])
    how = {name: order[name] for name in ("layout", "frames", "body")}
    advance, data = stepper(mujoco, model, states, reached, **how), workspace(mujoco, model)
    os.write(order["answers"], bytes(NUMBER.itemsize))
    while number := os.read(order["orders"], NUMBER.itemsize):
        advance(data, (int.from_bytes(number, sys.byteorder),))
        os.write(order["answers"], number)


if __name__ == "__main__":
    main(sys.argv[1])
