"""Pictures by MuJoCo's renderer, without a window. They need a graphics library; the stick figure does not."""

import ctypes.util
import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from prism_marl.envs.mamujoco.engine import load_engine, load_model, row_layout
from prism_marl.envs.mamujoco.stepping import workspace
from prism_marl.envs.mamujoco.tasks import find_task
from prism_marl.errors import UserError

LIBRARIES = {"egl": ("EGL", "libegl1"), "osmesa": ("OSMesa", "libosmesa6")}  # backend: library, Debian's package


def frames(
    task: str, snapshots: Iterable[dict[str, np.ndarray]], row: int = 0, *, width: int = 480, height: int = 320
) -> list[np.ndarray]:
    """One picture [height, width, 3] of 8-bit colours for each snapshot of ``Robots``."""
    robot = find_task(task.removeprefix("mamujoco/"))
    engine = load_engine()
    model = load_model(engine, robot)
    _, slices, _ = row_layout(engine, model)
    data, links = workspace(engine, model), robot.agents * robot.joints + 1
    camera = engine.MjvCamera()
    camera.type = engine.mjtCamera.mjCAMERA_FREE
    camera.azimuth = 90
    camera.elevation, camera.distance = (-90.0, 1.3 * links) if robot.robot == "swimmer" else (-15.0, 4.0)
    studio = _Studio(engine, model, width, height)
    try:
        out = []
        for snapshot in snapshots:
            data.qpos[:] = snapshot["states"][row, slices["QPOS"]]
            engine.mj_forward(model, data)
            camera.lookat[:] = data.subtree_com[0]
            out.append(studio.picture(data, camera))
        return out
    finally:
        studio.close()


def graphics_packages() -> list[str]:
    """Debian's packages of the graphics libraries that are there."""
    return [package for library, package in LIBRARIES.values() if ctypes.util.find_library(library)]


class _Studio:
    """A picture in memory, into which the engine draws."""

    def __init__(self, engine: Any, model: Any, width: int, height: int):
        self._engine, self._model, self._shape = engine, model, (height, width, 3)
        screen = model.vis.global_
        screen.offwidth, screen.offheight = max(screen.offwidth, width), max(screen.offheight, height)
        self._screen = _open(engine, width, height)
        self._scene = engine.MjvScene(model, maxgeom=10_000)
        self._pen = engine.MjrContext(model, engine.mjtFontScale.mjFONTSCALE_100)
        engine.mjr_setBuffer(engine.mjtFramebuffer.mjFB_OFFSCREEN, self._pen)
        self._frame, self._options = engine.MjrRect(0, 0, width, height), engine.MjvOption()

    def picture(self, data: Any, camera: Any) -> np.ndarray:
        engine, out = self._engine, np.empty(self._shape, np.uint8)
        everything = engine.mjtCatBit.mjCAT_ALL
        engine.mjv_updateScene(self._model, data, self._options, None, camera, everything, self._scene)
        engine.mjr_render(self._frame, self._scene, self._pen)
        engine.mjr_readPixels(out, None, self._frame, self._pen)
        return out[::-1].copy()  # the engine's first line is at the bottom

    def close(self) -> None:
        self._pen.free()
        self._screen.free()


def _open(engine: Any, width: int, height: int) -> Any:
    """A graphics backend: the one that MUJOCO_GL names, else one that is installed."""
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    try:
        screen = _backend(engine, wanted)(width, height)
        screen.make_current()
    except Exception as error:  # the libraries raise many types for a missing or broken driver
        names = [LIBRARIES[wanted]] if wanted in LIBRARIES else LIBRARIES.values()
        packages = " or ".join(package for _, package in names)
        raise UserError(
            f"render: no graphics library for pictures without a window ({type(error).__name__}); install {packages} "
            "and set MUJOCO_GL=egl or MUJOCO_GL=osmesa, or leave the camera out: the stick figure needs neither"
        ) from error
    return screen


def _backend(engine: Any, wanted: str) -> Any:
    if wanted in LIBRARIES:
        return importlib.import_module(f"mujoco.{wanted}").GLContext
    if not sys.platform.startswith("linux") or wanted:
        return engine.GLContext
    for name, (library, _) in LIBRARIES.items():
        if ctypes.util.find_library(library):
            return importlib.import_module(f"mujoco.{name}").GLContext
    raise ImportError("neither EGL nor OSMesa is installed")
