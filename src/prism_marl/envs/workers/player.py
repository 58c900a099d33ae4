"""The process that plays Python environments for another one: it answers questions until nobody asks any more.

Started as a ``Child`` with the name of the task.
"""

import contextlib
from typing import Any

import numpy as np

from prism_marl.envs.base import PythonEnv
from prism_marl.envs.registry import make_python
from prism_marl.envs.workers.channel import Channel, pack, unpack
from prism_marl.envs.workers.process import parent_channel
from prism_marl.errors import UserError
from prism_marl.scene import scene_to_json
from prism_marl.types import Observation, Step


def serve(task: str, channel: Channel) -> None:
    """Environments are numbered by whoever asks, and built when first asked for."""
    built: dict[int, PythonEnv] = {}
    channel.send(pack("ready"))
    with contextlib.suppress(EOFError, OSError):  # nobody asks any more
        while True:
            (place, verb, value), arrays = unpack(channel.receive(None))
            channel.send(_reply(task, built, place, verb, arrays.get("action", value)))
    for env in built.values():
        env.close()


def _reply(task: str, built: dict[int, PythonEnv], place: int, verb: str, argument: Any) -> bytes:
    try:
        if place not in built:
            built[place] = make_python(task)
        env = built[place]
        if verb == "scene":
            scene = env.scene()
            return pack({"scene": None if scene is None else scene_to_json(scene)})
        if verb == "reset":
            return pack({}, _seen(env.reset(argument)))
        return _outcome(env.step(argument))
    except UserError as error:
        return pack({"refused": str(error), "code": error.code})
    except Exception as error:  # whatever a stranger's game does is for the other side to judge
        built.pop(place, None)
        return pack({"failed": f"{type(error).__name__}: {error}".partition("\n")[0][:300]})


def _outcome(step: Step) -> bytes:
    ended = {"reward": step.reward, "terminated": step.terminated, "truncated": step.truncated}
    metrics = {f"metric.{name}": value for name, value in step.metrics.items()}
    return pack({}, _seen(step.obs) | {name: np.asarray(value) for name, value in (ended | metrics).items()})


def _seen(obs: Observation) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in obs._asdict().items()}


def main() -> None:
    """Entry point of the process."""
    (task,), channel = parent_channel()
    serve(task, channel)


if __name__ == "__main__":
    main()
