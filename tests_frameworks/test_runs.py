"""A run of this package, trained in JAX and read in PyTorch; and the code of docs/frameworks.md."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import prism_marl as pm
from prism_marl.errors import UserError
from prism_marl.sharing import Prism
from prism_marl.torch import SpectralLinear, load_layers, network_regularisers

PAGE = Path(__file__).parents[1] / "docs/frameworks.md"
SINGLE = {**os.environ, "JAX_ENABLE_X64": "0"}  # runs are in single precision


def train(folder: Path, *words: str) -> Path:
    sizes = ["--width", "8", "--steps", "600", "--eval-every", "600", "--seeds", "2"]
    command = [sys.executable, "-m", "prism_marl.cli", "train", *words, *sizes, "--out", str(folder)]
    subprocess.run(command, env=SINGLE, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def team(tmp_path_factory) -> Path:
    """A small finished run."""
    words = ("roles/3", "--sharing", "prism", "--sharing.ties", "apart", "--sharing.layer_base", "2")
    return train(tmp_path_factory.mktemp("a folder of runs") / "runs" / "team", *words)


@pytest.mark.parametrize("seed", [0, 1])
def test_layers_of_a_run_are_those_of_its_policy(team, seed):
    layers, policy = load_layers(team, seed), pm.load_policy(team, seed=seed)
    assert list(layers) == ["fc1", "fc2", "fc3", "fc4"]
    for depth, (name, layer) in enumerate(layers.items()):
        weight = np.swapaxes(layer.dense().detach().numpy(), 1, 2)
        assert_allclose(weight, np.broadcast_to(policy.tensors[f"{name}.weight"], weight.shape), atol=1e-6)
        assert_allclose(layer.bias.detach(), policy.tensors[f"{name}.bias"][0])
        assert layer.settings.ties == "apart" and layer.layer_weight == 2**depth
        assert layer.threshold.requires_grad
    assert "diversity" in network_regularisers(torch.nn.ModuleDict(layers))
    assert_array_equal(layers["fc1"].U.detach(), load_layers(team, seed)["fc1"].U.detach())
    assert (layers["fc1"].U != load_layers(team, 1 - seed)["fc1"].U).any()


def test_a_network_of_these_layers_acts_as_the_policy(team):
    """With the dense recurrent core from the policy's file."""
    layers, policy = load_layers(team), pm.load_policy(team)
    core = torch.nn.GRUCell(8, 8)
    with torch.no_grad():
        for part, name in (("ih", "input"), ("hh", "hidden")):
            getattr(core, f"weight_{part}").copy_(torch.tensor(policy.tensors[f"{name}.weight"][0].T))
            getattr(core, f"bias_{part}").copy_(torch.tensor(policy.tensors[f"{name}.bias"][0]))
    noise = np.random.default_rng(0)
    obs, memory = noise.normal(size=(5, 3, policy.contract.observation)).astype(np.float32), policy.reset(5)
    memory[..., : policy.contract.hidden] = noise.normal(size=(5, 3, 8))
    expected, _ = policy.outputs(obs, memory)
    x = layers["fc1"](torch.tensor(policy._inputs(obs, memory))).relu()
    h = core(x.reshape(15, 8), torch.tensor(memory[..., :8]).reshape(15, 8)).reshape(5, 3, 8)
    assert_allclose(
        layers["fc4"](layers["fc3"](layers["fc2"](h).relu()).relu()).detach(), expected, rtol=1e-4, atol=1e-5
    )


def test_only_sound_runs_with_prism_are_read(team, tmp_path):
    with pytest.raises(UserError, match="seed: this run has seeds 0 to 1, not 2"):
        load_layers(team, 2)
    with pytest.raises(UserError, match="has no checkpoint"):
        load_layers(tmp_path)
    copied = tmp_path / "copied"
    shutil.copytree(team, copied)
    newest = max((copied / "checkpoints").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        load_layers(copied)
    newest.write_bytes(content[:100])
    with pytest.raises(UserError, match="cannot be read as a run"):
        load_layers(copied)
    (copied / "config.json").write_text("[]")
    with pytest.raises(UserError, match="cannot be read as a run"):
        load_layers(copied)
    with pytest.raises(UserError, match="no layer of Prism"):
        load_layers(train(tmp_path / "fups", "roles/2", "--sharing", "fups"))


def test_the_code_of_the_page_works(team, monkeypatch):
    monkeypatch.chdir(team.parents[1])
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    there = Prism().linear(6, 5, identities=3, key=jax.random.key(0), kind="hidden", depth=0)
    here = SpectralLinear.of(there)
    with torch.no_grad():
        here.threshold += 6.0
    names = {"there": there, "here": here}
    for block in blocks:
        exec(compile(block, "frameworks.md", "exec"), names)  # our own page
    assert names["loss"].requires_grad and names["layer"].threshold.grad is not None
    assert set(names["network"]) == {"fc1", "fc2", "fc3", "fc4"}
    assert not np.allclose(there.dense(), names["there"].dense())
    assert_allclose(names["there"].dense(), here.dense().detach(), rtol=1e-6)
