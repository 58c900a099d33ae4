"""Writes a policy for use elsewhere: the file, a description beside it, and proof that the file acts alike."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.errors import UserError
from prism_marl.policies.contract import Contract
from prism_marl.policies.files import read_policy, write_policy
from prism_marl.policies.onnx_graph import OPSET, onnx_model, require_onnx
from prism_marl.policies.policy import Policy
from prism_marl.storage.files import write_atomically

ENDINGS = {"onnx": ".onnx", "safetensors": ".safetensors", "numpy": ".npz"}
STEPS, BATCH = 4, 16  # of the comparison of a file with the policy
TOLERANCE = 1e-4  # largest difference of outputs, relative to the largest of them
TIMED_SECONDS = 0.3


@dataclass(frozen=True)
class Latency:
    """How long one call takes: one sample, one core."""

    microseconds: float  # median
    runtime: str


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    contract_path: Path
    parameters: int
    bytes: int  # of the file
    multiply_adds: int  # for one action of one agent
    latency: Latency
    checked: str  # by what the file was compared with the policy


def export_policy(policy: Policy, path: Path) -> Exported:
    """Write a policy in the format that the ending of the name says, and check the file."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS.values():
        raise UserError(f"{path}: a policy is exported as {', '.join(ENDINGS.values())}; choose one as the ending")
    if path.suffix.lower() == ".onnx":
        model = onnx_model(policy)
        compare(policy, _reference(model, policy.contract), "onnx.reference")
        write_atomically(path, model.SerializeToString())
        latency, checked = _latency_of_onnx(policy, path), "onnx.reference"
    else:
        write_policy(policy, path)
        again = read_policy(path)
        compare(policy, again.outputs, "the file read again")
        latency, checked = measure(policy), "reading it again"
    beside = path.with_name(f"{path.name}.json")
    content = describe(policy, path, latency)
    write_atomically(beside, (json.dumps(content, indent=1) + "\n").encode())
    size = path.stat().st_size
    return Exported(path, beside, policy.parameters, size, policy.multiply_adds, latency, checked)


Outputs = Callable[[np.ndarray, np.ndarray, Any], tuple[np.ndarray, np.ndarray]]


def compare(policy: Policy, other: Outputs, who: str) -> None:
    """Raise unless both return the same outputs and remember the same, over some steps of made-up observations."""
    c, rng = policy.contract, np.random.default_rng(0)
    memory = policy.reset(BATCH)
    for _ in range(STEPS):
        obs, role = samples(c, rng)
        mine, hidden = policy.outputs(obs, memory, role)
        with np.errstate(over="ignore"):  # the reference's sigmoid of large numbers
            theirs, other_hidden = other(obs, memory, role)
        for one, two in ((mine, theirs), (hidden, other_hidden[..., : c.hidden])):
            largest = max(float(np.abs(one).max(initial=0)), 1.0)
            if one.shape != two.shape or not np.abs(one - two).max(initial=0) <= TOLERANCE * largest:
                raise UserError(f"the exported policy does not act as the trained one ({who}); nothing was exported")
        _, memory = policy.act(obs, memory, role=role)


def samples(c: Contract, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None]:
    """A batch of made-up observations in the range of the task, and roles where the policy reads them."""
    axes = (BATCH,) if c.agent is not None else (BATCH, c.agents)
    obs = rng.uniform(-1, 1, (*axes, c.observation)).astype(np.float32) / np.float32(c.scale or 1)
    return obs, rng.integers(0, c.roles, axes) if c.by_role else None


def _reference(model: Any, c: Contract) -> Outputs:
    """The model in the interpreter of the package onnx, which is written for reading and not for speed."""
    from onnx.reference import ReferenceEvaluator

    session: Any = ReferenceEvaluator(model)
    return onnx_outputs(c, lambda feed: session.run(None, feed))


def onnx_outputs(c: Contract, run: Callable[[dict[str, Any]], list[np.ndarray]]) -> Outputs:
    """``Policy.outputs`` of an ONNX runtime, with all actions legal."""

    def outputs(obs: np.ndarray, memory: np.ndarray, role: Any) -> tuple[np.ndarray, np.ndarray]:
        found = run(onnx_feed(c, obs, memory, role))
        return found[1], found[2] if c.memory else memory

    return outputs


def onnx_feed(c: Contract, obs: np.ndarray, memory: np.ndarray, role: Any, mask: Any = None) -> dict[str, Any]:
    """What an ONNX runtime gets for one step."""
    feed: dict[str, Any] = {"obs": obs}
    if c.memory:
        feed["h_in"] = memory
    if c.kind == "discrete":
        feed["mask"] = np.ones((*obs.shape[:-1], c.actions), bool) if mask is None else mask
    if c.by_role:
        feed["role"] = np.asarray(role, np.int64)
    return feed


def measure(policy: Policy, seconds: float = TIMED_SECONDS) -> Latency:
    """The median time of one call of the policy in numpy, called for so long."""
    c = policy.contract
    memory = policy.reset(1)
    obs = np.zeros((*memory.shape[:-1], c.observation), np.float32)
    role = np.zeros(memory.shape[:-1], int) if c.by_role else None
    median = _median(lambda: policy.act(obs, memory, role=role), seconds)
    return Latency(median, f"numpy {np.__version__}")


def _latency_of_onnx(policy: Policy, path: Path) -> Latency:
    """In onnxruntime where that is installed, else of the same policy in numpy."""
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]
    except ImportError:
        return measure(policy)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    c, memory = policy.contract, policy.reset(1)
    obs = np.zeros((*memory.shape[:-1], c.observation), np.float32)
    feed = onnx_feed(c, obs, memory, np.zeros(memory.shape[:-1], np.int64))
    return Latency(_median(lambda: session.run(None, feed)), f"onnxruntime {onnxruntime.__version__}")


def _median(call: Callable[[], Any], seconds: float = TIMED_SECONDS) -> float:
    """Microseconds of a call, after some that do not count."""
    for _ in range(10):
        call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 20 or (time.perf_counter() < end and len(times) < 2000):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return round(float(np.median(times)) * 1e6, 1)


def describe(policy: Policy, path: Path, latency: Latency) -> dict[str, Any]:
    """The description beside a file: what goes in, what comes out, what it means, where it comes from."""
    c = policy.contract
    lead = ["batch"] if c.agent is not None else ["batch", c.agents]
    onnx = path.suffix.lower() == ".onnx"
    inputs = {"obs": _port("float32", [*lead, c.observation], "the observation, unscaled, as the environment gives it")}
    if c.memory:
        start = "zeros at the start of an episode, then what came out before"
        inputs["h_in" if onnx else "memory"] = _port("float32", [*lead, c.memory], start)
    if c.kind == "discrete":
        inputs["mask" if onnx else "avail"] = _port("bool", [*lead, c.actions], "which actions are legal")
    if c.by_role:
        inputs["role"] = _port("int64", lead, f"the unit type of each agent, 0 to {c.roles - 1}")
    discrete = c.kind == "discrete"
    outputs = {
        "action": _port("int64", lead, "the best legal action")
        if discrete
        else _port("float32", [*lead, c.actions], "the action vector, each number in [-1, 1]"),
        "values" if discrete else "mean": _port("float32", [*lead, c.actions], "what the network says of each action"),
    }
    if c.memory:
        outputs["h_out" if onnx else "memory"] = _port("float32", [*lead, c.memory], "to be passed in at the next step")
    names = c.observation_names or [f"number {index}" for index in range(c.observation)]
    meanings = c.observation_meaning or [""] * c.observation
    return {
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "inputs": inputs,
        "outputs": outputs,
        "observation": [
            {"index": index, "name": name, "meaning": meaning}
            for index, (name, meaning) in enumerate(zip(names, meanings, strict=True))
        ],
        "actions": [{"index": index, "name": name} for index, name in enumerate(c.action_names)],
        "size": {"parameters": policy.parameters, "bytes": path.stat().st_size, "multiply_adds": policy.multiply_adds},
        "latency": {"microseconds": latency.microseconds, "runtime": latency.runtime, "batch": 1, "cores": 1},
        "opset": OPSET if onnx else None,
        "contract": c.as_dict(),
    }


def _port(kind: str, shape: list[Any], meaning: str) -> dict[str, Any]:
    return {"type": kind, "shape": shape, "meaning": meaning}


def check_format(ending: str) -> None:
    """Raise for a format whose package is not there, before anything else is done."""
    if ending == ENDINGS["onnx"]:
        require_onnx()
