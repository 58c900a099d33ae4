"""The program of a worker process: it runs several Python environments of one task and answers requests about them.

A request is (slot, command, value): the number of the environment, and ``reset``, ``step`` or ``scene``.
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
    """Answer requests until the other end closes the channel. An environment is built by its first request."""
    built: dict[int, PythonEnv] = {}
    channel.send(pack("ready"))
    with contextlib.suppress(EOFError, OSError):  # the other end is closed
        while True:
            (slot, command, value), arrays = unpack(channel.receive(None))
            channel.send(_reply(task, built, slot, command, arrays.get("action", value)))
    for env in built.values():
        env.close()


def _reply(task: str, built: dict[int, PythonEnv], slot: int, command: str, argument: Any) -> bytes:
    try:
        if slot not in built:
            built[slot] = make_python(task)
        env = built[slot]
        if command == "scene":
            scene = env.scene()
            return pack({"scene": None if scene is None else scene_to_json(scene)})
        if command == "reset":
            return pack({}, _observation_arrays(env.reset(argument)))
        return pack({}, _step_arrays(env.step(argument)))
    except UserError as error:
        return pack({"refused": str(error), "code": error.code})
    except Exception as error:  # code of other people may raise anything; the parent decides what to do
        built.pop(slot, None)
        return pack({"failed": f"{type(error).__name__}: {error}".partition("\n")[0][:300]})


def _step_arrays(step: Step) -> dict[str, np.ndarray]:
    numbers = {"reward": step.reward, "terminated": step.terminated, "truncated": step.truncated}
    metrics = {f"metric.{name}": value for name, value in step.metrics.items()}
    if step.agent_reward is not None:
        numbers["agent_reward"] = step.agent_reward
    return _observation_arrays(step.obs) | {name: np.asarray(value) for name, value in (numbers | metrics).items()}


def _observation_arrays(obs: Observation) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in obs._asdict().items()}


def main() -> None:
    """Entry point of the process."""
    (task,), channel = parent_channel()
    serve(task, channel)


if __name__ == "__main__":
    main()
