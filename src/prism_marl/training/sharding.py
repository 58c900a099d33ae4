"""Where the arrays of a training state live: seeds are spread over the devices of this process, the rest is everywhere.

Seeds do not depend on each other but for the count of steps that ends a stretch, so each device trains its own, and the
compiler splits the program along the seed axis. What it computes is the same up to rounding: a product over fewer seeds
may add its terms in another order.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from prism_marl.monitor import Monitor
from prism_marl.training.state import TrainState
from prism_marl.training.trainer import Trainer


def seed_shardings(trainer: Trainer, template: TrainState, monitor: Monitor) -> TrainState | None:
    """The place of every array of a state, in the structure of the state; None where one device does it all.

    Environments on the host feed one device: playing is what takes their time.
    """
    seeds, there = trainer.experiment.run.seeds, len(jax.local_devices())
    if there == 1 or trainer.eager:
        return None
    devices = seed_devices(seeds)
    if len(devices) < there:
        monitor.note(f"{len(devices)} of {there} devices are used: run.seeds {seeds} is no multiple of more")
    return shardings(template, devices) if len(devices) > 1 else None


def seed_devices(seeds: int) -> list[Any]:
    """As many local devices as can have equally many seeds each."""
    devices = jax.local_devices()
    return devices[: max(number for number in range(1, len(devices) + 1) if seeds % number == 0)]


def shardings(template: TrainState, devices: list[Any]) -> TrainState:
    """Seeds apart, everything else on all devices."""
    mesh = Mesh(np.array(devices), ("seeds",))
    apart, everywhere = NamedSharding(mesh, PartitionSpec("seeds")), NamedSharding(mesh, PartitionSpec())
    placed = jax.tree.map(lambda leaf: everywhere, template)
    return eqx.tree_at(lambda state: state.seeds, placed, jax.tree.map(lambda leaf: apart, template.seeds))
