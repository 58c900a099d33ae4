"""An exported graph computes what the policy computes, in the reference of ONNX and in onnxruntime."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from teams import BATTLE, FORAGER, LBF, ROBOT, ROWS, made_up, make, policy_of

from prism_marl import envs
from prism_marl.errors import UserError
from prism_marl.learners import MATD3, QMix
from prism_marl.policies import Policy, export
from prism_marl.policies.export import compare, export_policy, onnx_feed, onnx_outputs
from prism_marl.policies.onnx_graph import onnx_model
from prism_marl.sharing import METHODS
from prism_marl.types import EnvSpec

BASIC = {
    *("Add", "ArgMax", "Cast", "Clip", "Concat", "Div", "Equal", "Expand", "Gather", "Identity", "MatMul", "Mul"),
    *("ReduceMean", "Relu", "Shape", "Sigmoid", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Unsqueeze"),
    "Where",
}


def session(path_or_bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path_or_bytes, options, providers=["CPUExecutionProvider"])


def assert_runtime_agrees(policy: Policy, spec: EnvSpec) -> None:
    """Outputs and memory on made-up observations, and actions with illegal ones among them."""
    model = onnx_model(policy)
    assert {node.op_type for node in model.graph.node} <= BASIC
    running, c = session(model.SerializeToString()), policy.contract
    compare(policy, onnx_outputs(c, lambda feed: running.run(None, feed)), "onnxruntime")
    agents = slice(None) if c.agent is None else c.agent
    memory = policy.reset(ROWS)
    for step in range(3):
        local, _, avail, role = (np.asarray(part) for part in made_up(spec, step))
        local, avail, role = local[:, agents], avail[:, agents], role[:, agents]
        found = running.run(None, onnx_feed(c, local, memory, role, avail))
        action, memory = policy.act(local, memory, avail, role)
        if c.kind == "continuous":
            np.testing.assert_allclose(found[0], action, atol=1e-5)
        else:
            assert (found[0] == action).mean() > 0.999 and found[0].dtype == np.int64
            assert np.take_along_axis(avail, found[0][..., None], axis=-1).all()
        if c.last_action:  # rounding may exchange two actions of equal value
            assert (np.abs(found[2] - memory).max(axis=-1) < 1e-4).mean() > 0.999


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_the_recurrent_learner(method):
    learner, state = make(method, FORAGER, envs.describe(LBF))
    assert_runtime_agrees(policy_of(learner, state), learner.spec)
    assert_runtime_agrees(policy_of(learner, state, agent=1, factored=True), learner.spec)


@pytest.mark.parametrize("method", ["prism", "fups_id", "nops", "seps"])
def test_continuous_teams_and_agents(method):
    learner, state = make(method, MATD3(), ROBOT)
    assert_runtime_agrees(policy_of(learner, state, factored=True), ROBOT)
    assert_runtime_agrees(policy_of(learner, state, agent=0), ROBOT)


def test_roles_choose_the_matrices():
    learner, state = make("prism", QMix(), BATTLE, masks="role")
    assert_runtime_agrees(policy_of(learner, state), BATTLE)
    assert_runtime_agrees(policy_of(learner, state, factored=True), BATTLE)
    assert_runtime_agrees(policy_of(learner, state, agent=2), BATTLE)


@pytest.fixture(scope="module")
def team() -> Policy:
    learner, state = make("prism", QMix(last_action=True, scale_inputs=True), BATTLE)
    return policy_of(learner, state)


@pytest.mark.parametrize("ending", [".onnx", ".safetensors", ".npz"])
def test_the_description_says_what_goes_in_and_comes_out(team, ending, tmp_path):
    written = export_policy(team, tmp_path / "a folder" / f"team{ending}")
    assert written.path.stat().st_size == written.bytes and written.latency.microseconds > 0
    told = json.loads(written.contract_path.read_text())
    assert written.contract_path.name == f"team{ending}.json" and told["file"] == f"team{ending}"
    assert told["size"]["parameters"] == team.parameters and told["contract"]["task"] == "battle"
    assert len(told["observation"]) == BATTLE.observation
    if ending == ".onnx":
        model = onnx.load(written.path)
        ports = {name: [one.name for one in getattr(model.graph, name + "put")] for name in ("in", "out")}
        assert ports == {"in": list(told["inputs"]), "out": list(told["outputs"])}
        assert model.opset_import[0].version == 13
        assert json.loads({p.key: p.value for p in model.metadata_props}["contract"]) == told["contract"]
        assert "onnxruntime" in written.latency.runtime


def test_a_file_that_acts_otherwise_is_not_written(team, tmp_path, monkeypatch):
    def wrong(policy):
        model = onnx_model(policy)
        bias = next(one for one in model.graph.initializer if one.name == "fc4.bias")
        bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 1, "fc4.bias"))
        return model

    monkeypatch.setattr(export, "onnx_model", wrong)
    with pytest.raises(UserError, match="does not act as the trained one"):
        export_policy(team, tmp_path / "team.onnx")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match=r"exported as \.onnx"):
        export_policy(team, Path("team.pt"))


def test_factors_are_smaller_where_agents_are_many():
    learner, state = make("prism", QMix(), BATTLE)
    dense, factored = policy_of(learner, state), policy_of(learner, state, factored=True)
    assert factored.bytes < dense.bytes
    off = [factored.tensors[name] for name in factored.tensors if name.endswith(".s")]
    assert off and all((s != 0).any(axis=0).all() for s in off)  # no direction that nobody uses
    fups, state = make("fups_id", QMix(), BATTLE)
    assert policy_of(fups, state, factored=True).bytes == policy_of(fups, state).bytes
