"""A policy as an ONNX graph (opset 13), built by hand from basic operators that game engines and robots can read.

Inputs are ``obs`` and, where the policy needs them, ``h_in`` (zeros at the start of an episode), ``mask`` (legal
actions) and ``role`` (unit types); outputs are ``action``, then ``values`` (discrete) or ``mean`` (continuous), and
``h_out``. Everything between an observation as the environment gives it and an action is inside.
"""

import json
from typing import Any

import numpy as np

from prism_marl.errors import UserError, install_command
from prism_marl.policies.contract import CORE
from prism_marl.policies.layers import Factored, Layer
from prism_marl.policies.policy import UNAVAILABLE, Policy

OPSET = 13
IR_VERSION = 8  # of the file; the newest that runtimes of opset 13 read


def require_onnx() -> Any:
    """The package onnx. Raises where it is not installed."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise UserError(
            f"--format: onnx needs a package that is not installed: {install_command(extra='onnx')}"
        ) from None
    return onnx


def onnx_model(policy: Policy) -> Any:
    """The policy as an ``onnx.ModelProto``."""
    onnx = require_onnx()
    graph = _Graph(onnx, policy)
    graph.build()
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes, "policy", graph.inputs, graph.outputs, initializer=list(graph.constants.values())
        ),
        producer_name="prism-marl",
        producer_version=policy.contract.version,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
    )
    model.ir_version = IR_VERSION
    onnx.helper.set_model_props(model, {"contract": json.dumps(policy.contract.as_dict())})
    onnx.checker.check_model(model, full_check=True)
    return model


class _Graph:
    """Nodes in the order in which they are computed; a method adds nodes and returns the name of their result."""

    def __init__(self, onnx: Any, policy: Policy):
        self.onnx, self.policy, self.contract = onnx, policy, policy.contract
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.lead: list[int | str] = ["batch"] if policy.contract.agent is not None else ["batch", self.contract.agents]

    def build(self) -> None:
        c, proto = self.contract, self.onnx.TensorProto
        x = self.input("obs", proto.FLOAT, c.observation)
        memory = self.input("h_in", proto.FLOAT, c.memory) if c.memory else None
        mask = self.input("mask", proto.BOOL, c.actions) if c.kind == "discrete" else None
        role = self.input("role", proto.INT64) if c.by_role else None
        hidden, last = self._split(memory)
        values, hidden = self._network(self._encoded(x, last), hidden, role)
        if c.kind == "discrete":
            legal = self.node("Where", mask, values, self.constant("unavailable", np.array(UNAVAILABLE)))
            self.node("ArgMax", legal, out="action", axis=-1, keepdims=0)
            self.output("action", proto.INT64)
        else:
            ends = [self.constant(f"end_{end}", np.array(end, np.float32)) for end in (-1, 1)]
            self.node("Clip", values, *ends, out="action")
            self.output("action", proto.FLOAT, c.actions)
        self.node("Identity", values, out="values" if c.kind == "discrete" else "mean")
        self.output("values" if c.kind == "discrete" else "mean", proto.FLOAT, c.actions)
        if memory is not None:
            self._remember(hidden)
            self.output("h_out", proto.FLOAT, c.memory)

    def input(self, name: str, kind: int, *size: int) -> str:
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, [*self.lead, *size]))
        return name

    def output(self, name: str, kind: int, *size: int) -> None:
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, kind, [*self.lead, *size]))

    def constant(self, name: str, value: np.ndarray) -> str:
        """A number or matrix of the file, stored once."""
        if name not in self.constants:
            self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def node(self, op: str, *inputs: str | None, out: str | None = None, **attributes: Any) -> str:
        """One operator with one result."""
        result = out or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, [name or "" for name in inputs], [result], **attributes))
        return result

    def parts(self, x: str, sizes: list[int]) -> list[str]:
        """``x`` cut along its last axis."""
        names = [f"split_{len(self.nodes)}_{place}" for place in range(len(sizes))]
        lengths = self.constant(f"sizes_{'_'.join(map(str, sizes))}", np.array(sizes, np.int64))
        self.nodes.append(self.onnx.helper.make_node("Split", [x, lengths], names, axis=-1))
        return names

    def _split(self, memory: str | None) -> tuple[str | None, str | None]:
        """Hidden state and last action."""
        c = self.contract
        if memory is None or not (c.hidden and c.last_action):
            return (memory, None) if c.hidden else (None, memory)
        hidden, last = self.parts(memory, [c.hidden, c.actions])
        return hidden, last

    def _encoded(self, x: str, last: str | None) -> str:
        """Scaled observation, last action, id; standardised where the policy was trained so."""
        c = self.contract
        if c.scale != 1:
            x = self.node("Mul", x, self.constant("scale", np.array(c.scale, np.float32)))
        pieces = [x] if last is None else [x, last]
        if c.ids:
            pieces.append(self._ids(x))
        if len(pieces) > 1:
            x = self.node("Concat", *pieces, axis=-1)
        if not c.standardise:
            return x
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1], keepdims=1))
        variance = self.node("ReduceMean", self.node("Mul", centred, centred), axes=[-1], keepdims=1)
        deviation = self.node("Sqrt", variance)
        zero, one = (self.constant(name, np.array(value, np.float32)) for name, value in (("zero", 0), ("one", 1)))
        return self.node("Div", centred, self.node("Where", self.node("Equal", deviation, zero), one, deviation))

    def _ids(self, x: str) -> str:
        """The one-hot index of each agent, as often as there are samples."""
        c, own = self.contract, np.eye(self.contract.agents, self.contract.ids, dtype=np.float32)
        own = own if c.agent is None else own[c.agent : c.agent + 1]
        batch = self.node("Slice", self.node("Shape", x), *self._slice(0, 1))
        rest = np.array([c.ids] if c.agent is not None else [c.agents, c.ids], np.int64)
        shape = self.node("Concat", batch, self.constant("id_shape", rest), axis=0)
        return self.node("Expand", self.constant("ids", own), shape)

    def _slice(self, start: int, end: int) -> tuple[str, str]:
        first = self.constant(f"from_{start}", np.array([start], np.int64))
        return first, self.constant(f"to_{end}", np.array([end], np.int64))

    def _network(self, x: str, hidden: str | None, role: str | None) -> tuple[str, str | None]:
        layers = self.policy.layers
        for step in self.contract.network:
            if step in ("relu", "tanh"):
                x = self.node(step.capitalize(), x)
            elif step == CORE:
                assert hidden is not None
                x = hidden = self._gru(x, hidden, role)
            else:
                x = self._linear(layers[step], x, role)
        return x, hidden

    def _linear(self, layer: Layer, x: str, role: str | None) -> str:
        """x times the matrix of its identity, plus its bias."""
        name = layer.name
        if isinstance(layer, Factored):
            low = self.node("MatMul", x, self.constant(f"{name}.V", layer.V))
            x = self.node("Mul", low, self._rows(f"{name}.s", layer.s, role))
            product = self.node("MatMul", x, self.constant(f"{name}.U", layer.U))
        else:
            weight = self.policy.tensors[f"{name}.weight"]
            if len(weight) == 1:
                product = self.node("MatMul", x, self.constant(f"{name}.weight", weight[0]))
            else:  # [b, a, 1, i] times [a, i, o], or [b, a, i, o] where roles decide
                last = self.constant("before_last", np.array([-2], np.int64))
                row = self.node("Unsqueeze", x, last)
                own = self._rows(f"{name}.weight", weight, role)
                product = self.node("Squeeze", self.node("MatMul", row, own), last)
        return self.node("Add", product, self._rows(f"{name}.bias", layer.bias, role))

    def _rows(self, name: str, table: np.ndarray, role: str | None) -> str:
        """The row of each identity: the only one, or a gather over identities."""
        if len(table) == 1:
            return self.constant(name, table[0])
        identity = role
        if identity is None:
            own = np.array(self.contract.identity, np.int64)
            if np.array_equal(own, np.arange(len(table))):
                return self.constant(name, table)
            identity = self.constant("identity", own)
        return self.node("Gather", self.constant(name, table), identity, axis=0)

    def _gru(self, x: str, hidden: str, role: str | None) -> str:
        layers, third = self.policy.layers, [self.contract.hidden] * 3
        of_input = self.parts(self._linear(layers["input"], x, role), third)
        of_state = self.parts(self._linear(layers["hidden"], hidden, role), third)
        reset = self.node("Sigmoid", self.node("Add", of_input[0], of_state[0]))
        update = self.node("Sigmoid", self.node("Add", of_input[1], of_state[1]))
        new = self.node("Tanh", self.node("Add", of_input[2], self.node("Mul", reset, of_state[2])))
        rest = self.node("Sub", self.constant("one", np.array(1, np.float32)), update)
        out = self.node("Add", self.node("Mul", rest, new), self.node("Mul", update, hidden))
        gate = self.policy.tensors.get("gate.mask")
        return out if gate is None else self.node("Mul", out, self._rows("gate.mask", gate, role))

    def _remember(self, hidden: str | None) -> None:
        """``h_out``: the hidden state, and a one-hot code of the action where the agent reads its last one."""
        c = self.contract
        pieces = [] if hidden is None else [hidden]
        if c.last_action:
            last = self.constant("last", np.array([-1], np.int64))
            every = self.constant("every_action", np.arange(c.actions, dtype=np.int64))
            chosen = self.node("Equal", self.node("Unsqueeze", "action", last), every)
            pieces.append(self.node("Cast", chosen, to=self.onnx.TensorProto.FLOAT))
        if len(pieces) > 1:
            self.node("Concat", *pieces, out="h_out", axis=-1)
        else:
            self.node("Identity", pieces[0], out="h_out")
