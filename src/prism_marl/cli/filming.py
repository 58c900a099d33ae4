"""An episode as a film or as text: what to keep of a long one, how fast to show it, and MuJoCo's own camera."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from prism_marl.envs.mamujoco import camera
from prism_marl.errors import UserError
from prism_marl.render.mp4 import find_ffmpeg
from prism_marl.render.video import SAVERS, known_endings, write_film
from prism_marl.runs.run_files import evenly_spaced
from prism_marl.scene import Scene
from prism_marl.training.state import TrainState
from prism_marl.training.trainer import Trainer

FILM_FRAMES = 401  # of 1000 steps of a robot, about every second or third: still smooth, and a file of a few MB
FILM_SECONDS = 20.0  # a longer episode is shown faster than five steps a second
TEXT_FRAMES = 60  # nobody reads a thousand screens

Frame = TypeVar("Frame")


def check_camera(task: str, target: str | None) -> None:
    """Refuse the camera before anything is played: a task without one, no file to film into, no graphics library."""
    if not task.startswith("mamujoco/"):
        raise UserError(
            f"--camera: '{task}' has no camera, only mamujoco tasks do; leave it out, and pictures are drawn"
        )
    if target is None or target == "text":
        raise UserError("--camera: pictures need a file; add --render FILE.gif or FILE.mp4")
    camera.frames(task, [])


def check_target(target: str, option: str = "--render") -> None:
    """Refuse a file that cannot become a film before anything is played."""
    name = Path(target)
    ending = name.suffix.lower()
    if target != "text" and ending not in SAVERS:
        word = " and the word text" if option == "--render" else ""
        raise UserError(
            f"{option}: cannot write '{name.name}'; {known_endings()}{word} are known, try '{name.stem or 'x'}.gif'"
        )
    if target != "text" and not name.parent.is_dir():
        raise UserError(f"{option}: there is no folder '{name.parent}'; make it first, or choose another file")
    if ending == ".mp4":
        find_ffmpeg()


def thinned(frames: Sequence[Frame], limit: int) -> list[Frame]:
    """At most so many frames, evenly spaced, the first and the last among them."""
    return [frames[index] for index in evenly_spaced(len(frames), limit)]


def save(frames: Sequence[Scene | Image.Image], path: Path) -> None:
    """Five frames a second, or as many as end the film in time."""
    write_film(frames, path, fps=max(5.0, len(frames) / FILM_SECONDS))


def film(trainer: Trainer, state: TrainState, seed: int, episode: int) -> tuple[list[Image.Image], float, int]:
    """One episode through MuJoCo's camera: pictures, the return, and the steps played."""
    states: list[Any] = []
    _, total = trainer.watch(state, seed=seed, number=episode, states=states)
    return photographed(trainer.experiment.task, thinned(states, FILM_FRAMES)), total, len(states) - 1


def photographed(task: str, states: Sequence[Any]) -> list[Image.Image]:
    """Pictures of a robot in these states."""
    return [Image.fromarray(picture) for picture in camera.frames(task, states)]
