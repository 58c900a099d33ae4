"""What a family of tasks is: how its tasks are written, and how they are built."""

from collections.abc import Callable
from dataclasses import dataclass

from prism_marl.envs.base import JaxEnv, PythonEnv, RowsEnv
from prism_marl.envs.diversity import Diversity
from prism_marl.envs.meaning import Meaning
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class Family:
    """A family of tasks: how its tasks are written, and the function that builds them. Give one of ``make`` (JAX),
    ``python`` (one game) and ``rows`` (many games on the host); it receives what follows the slash."""

    pattern: str
    examples: tuple[str, ...]
    about: str
    make: Callable[[str], JaxEnv] | None = None  # compiled with the training program
    shape: Callable[[str], EnvSpec] | None = None  # sizes, known without building anything
    python: Callable[[str], PythonEnv] | None = None  # one episode at a time in Python
    workers: bool = False  # ``python`` may be played in other processes, which can build it from its name alone
    rows: Callable[[str, int, int | None], RowsEnv] | None = None  # variant, rows, threads; goes with ``shape``
    meaning: Callable[[str], Meaning] | None = None  # what observations and actions mean, for exported policies
    diversity: Callable[[str], Diversity] | None = None  # what a team gains when its agents may differ
