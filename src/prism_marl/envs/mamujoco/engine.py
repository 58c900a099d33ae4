"""The physics engine and its models, with the contacts of published results.

Up to MuJoCo 3.4 the margin of a pair of geoms is the larger of their two margins, from 3.5 on the sum. Pairs that a
model lists have an explicit margin: the larger one. For pairs that are not listed, halving the margin of every geom
gives the old contacts, because all geoms of Ant and Hopper have equal margins. In 4.0 Ant moves differently for another
reason.
"""

import os
import re
from pathlib import Path
from typing import Any

from prism_marl.envs.base import require
from prism_marl.envs.mamujoco.contacts import with_listed_contacts
from prism_marl.envs.mamujoco.swimmer import build_swimmer
from prism_marl.envs.mamujoco.tasks import DAMAGED_TORQUE, Task
from prism_marl.errors import UserError, install_command

_FILES = {"ant": "ant.xml", "halfcheetah": "half_cheetah.xml", "hopper": "hopper.xml", "walker2d": "walker2d.xml"}
_PARTS = ("TIME", "QPOS", "QVEL", "ACT", "WARMSTART", "CTRL")
OLDEST, SUMMED, CHANGED = (3, 2, 4), (3, 5, 0), (4, 0, 0)  # versions: can build models, margins add up, Ant differs


def load_engine() -> Any:
    """The package ``mujoco``; raises if it is not installed or its version does not fit."""
    try:
        engine = require("mujoco", "mujoco")
    except (ImportError, AttributeError, RuntimeError) as error:  # it looks for the library that MUJOCO_GL names
        screen = os.environ.get("MUJOCO_GL")
        remedy = f"unset MUJOCO_GL, which is '{screen}'" if screen else install_command("mujoco==3.4.0")
        raise UserError(f"task: MuJoCo does not load ({type(error).__name__}): {remedy}", code=1) from error
    release = _release(engine)
    if not OLDEST <= release < CHANGED:
        why = "is too old to build models" if release < OLDEST else "moves robots differently from published results"
        raise UserError(f"task: MuJoCo {engine.__version__} {why}: {install_command('mujoco==3.4.0')}")
    return engine


def load_model(engine: Any, task: Task) -> Any:
    """Gymnasium's model file, or a swimmer, damaged or not, without computations that never change a number."""
    model = load_raw_model(engine, task)
    if task.robot != "swimmer":  # it has no contacts
        margin = model.geom_margin.copy()
        if _release(engine) >= SUMMED:
            model.geom_margin[:] *= 0.5
        model = with_listed_contacts(engine, _file(task), model, margin)
    if task.damaged is not None:
        first = task.damaged * task.joints
        model.actuator_gear[first : first + task.joints] *= DAMAGED_TORQUE
    # A robot is one tree, so the search for independent parts of the world would find one part in every step.
    model.opt.disableflags |= int(getattr(engine.mjtDisableBit, "mjDSBL_ISLAND", 0))
    return model


def load_raw_model(engine: Any, task: Task) -> Any:
    """The whole robot without our changes, so slower, and in a newer engine with other contacts."""
    if task.robot == "swimmer":
        return build_swimmer(engine, task.agents * task.joints)
    return engine.MjModel.from_xml_path(str(_file(task)))


def _file(task: Task) -> Path:
    package = Path(require("gymnasium", "mujoco").__file__)
    file = package.parent / "envs" / "mujoco" / "assets" / _FILES[task.robot]
    if not file.exists():
        raise UserError(f"task: the installed gymnasium has no {file.name}: {install_command('gymnasium==1.4.0')}")
    return file


def row_layout(engine: Any, model: Any) -> tuple[int, dict[str, slice], int]:
    """The flags of the parts of a row, the slice of each part, and the length of a row. Parts are ordered by flag.

    A row is the state that the engine needs to continue with the same bits. It includes the solver's last solution,
    from which the next search starts; without it the last digits would differ.
    """
    flags = sorted((int(getattr(engine.mjtState, f"mjSTATE_{part}")), part) for part in _PARTS)
    slices, end = {}, 0
    for flag, part in flags:
        start, end = end, end + engine.mj_stateSize(model, flag)
        slices[part] = slice(start, end)
    return sum(flag for flag, _ in flags), slices, end


def _release(engine: Any) -> tuple[int, ...]:
    """The first three numbers of a version, without suffixes: 3.5 and 3.5.0rc1 are (3, 5, 0)."""
    numbers = [re.match("[0-9]*", part) for part in engine.__version__.split(".")]
    return tuple(int((number and number[0]) or 0) for number in [*numbers, None, None][:3])
