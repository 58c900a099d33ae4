"""Stick figures without a graphics library: planar robots from the side, Ant at an angle, swimmers from above.

A rod has the colour of the agent that moves it, and is grey if no agent does. The picture follows the robot, and marks
on the ground show how it moves.
"""

from typing import Any

import numpy as np

from prism_marl.envs.mamujoco.stepping import workspace
from prism_marl.envs.mamujoco.tasks import HORIZON, Task
from prism_marl.scene import NOBODY, Scene, Shape

METRE = 16.0  # units of the picture
WIDE, HIGH = 64.0, 34.0
SIDE = 48.0  # of a picture from above
FLOOR = 2.0  # units below the floor
THINNEST = 0.6  # units, so that long swimmers stay visible
DEPTH = np.array([0.4, 0.3])  # shift to the right and up of a point one metre further away
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Drawing:
    """Draws one model from the positions of its joints."""

    def __init__(self, engine: Any, model: Any, task: Task):
        self._engine, self._model = engine, model
        self._data: Any = None  # made by the first call of ``scene``
        self._above, self._oblique = task.robot == "swimmer", task.robot == "ant"
        links = task.agents * task.joints + 1
        self._metre = SIDE / (1.3 * links) if self._above else METRE
        self._ground = 10 ** int(np.log10(links)) if self._above else 1  # metres between two marks
        apart = "1 metre" if self._ground == 1 else f"{self._ground} metres"
        self._legend = f"colour: the agent that moves a part; grey: moved by nobody; dots: {apart} apart"
        owners = _owners(model, task)
        solid = model.geom_type != engine.mjtGeom.mjGEOM_PLANE
        self._rods = np.flatnonzero(solid)
        self._colours = [owners[body] for body in model.geom_bodyid[self._rods]]
        self._width = np.maximum(2 * model.geom_size[self._rods, 0] * self._metre, THINNEST)
        sphere = model.geom_type[self._rods] == engine.mjtGeom.mjGEOM_SPHERE
        self._half = np.where(sphere, 0.0, model.geom_size[self._rods, 1])

    def scene(self, position: np.ndarray, clock: int) -> Scene:
        """The picture for joint positions [q]."""
        if self._data is None:
            self._data = workspace(self._engine, self._model)
        data = self._data
        data.qpos[:] = position
        self._engine.mj_kinematics(self._model, data)
        middle, along = data.geom_xpos[self._rods], data.geom_xmat[self._rods][:, [2, 5, 8]] * self._half[:, None]
        eye = middle.mean(axis=0) if self._above else np.array([position[0], position[1] if self._oblique else 0.0, 0])
        start, end = self._project(middle - along - eye), self._project(middle + along - eye)
        order = np.argsort(-middle[:, 1], kind="stable") if self._oblique else range(len(middle))
        rods = tuple(
            Shape(
                "bar" if self._half[k] else "disc",
                *start[k].tolist(),
                size=float(self._width[k]),
                colour=self._colours[k],
                glyph="#" if self._colours[k] == NOBODY else LETTERS[self._colours[k] % len(LETTERS)],
                dx=float(end[k, 0] - start[k, 0]),
                dy=float(end[k, 1] - start[k, 1]),
            )
            for k in order
        )
        width, height = (SIDE, SIDE) if self._above else (WIDE, HIGH)
        caption = f"step {clock}/{HORIZON}, {position[0]:.2f} m"
        numbers = {"step": float(clock), "metres": float(position[0])}
        shapes = self._marks(eye) + rods
        return Scene(width, height, shapes, grid=False, caption=caption, extra=numbers, legend=self._legend)

    def _project(self, point: np.ndarray) -> np.ndarray:
        """Points in metres around the eye [k, 3] to points of the picture [k, 2]."""
        x, y, z = point.T
        if self._above:
            return np.stack([SIDE / 2 + self._metre * x, SIDE / 2 - self._metre * y], axis=-1)
        away = y if self._oblique else np.zeros_like(y)
        floor = HIGH / 3 if self._oblique else FLOOR
        right, up = x + DEPTH[0] * away, z + DEPTH[1] * away
        return np.stack([WIDE / 2 + self._metre * right, HIGH - floor - self._metre * up], axis=-1)

    def _marks(self, eye: np.ndarray) -> tuple[Shape, ...]:
        """Dots where both coordinates are whole; from the side, a line with dots on it."""
        gap, flat = self._ground, not (self._above or self._oblique)
        reach = int((SIDE if self._above else WIDE) / self._metre / gap) // 2 + 1
        steps = gap * np.arange(-reach, reach + 1)
        across = np.zeros(1) if flat else steps + gap * np.round(eye[1] / gap)
        x, y = np.meshgrid(steps + gap * np.round(eye[0] / gap), across)
        spots = self._project(np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], axis=-1) - eye)
        size = (WIDE, HIGH) if not self._above else (SIDE, SIDE)
        inside = spots[((spots >= 0) & (spots <= size)).all(axis=1)]
        dots = tuple(Shape("disc", *spot, size=0.6, colour=NOBODY, glyph=".") for spot in inside.tolist())
        line = Shape("bar", 0.0, HIGH - FLOOR, 0.2, NOBODY, glyph="_", dx=WIDE)
        return (line, *dots) if flat else dots


def _owners(model: Any, task: Task) -> list[int]:
    """For each body the agent that moves it: its motor is in the body's joint, or in the nearest joint above it."""
    owners = [NOBODY] * model.nbody
    for motor, (joint, _) in enumerate(model.actuator_trnid):
        owners[model.jnt_bodyid[joint]] = motor // task.joints
    for body in range(1, model.nbody):
        if owners[body] == NOBODY:
            owners[body] = owners[model.body_parentid[body]]
    return owners
