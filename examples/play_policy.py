"""Plays an exported policy in the real package lbforaging, without prism-marl: onnxruntime or numpy are all it needs.

    prism-marl export RUN --format onnx --out team.onnx     # or --format numpy --out team.npz
    python examples/play_policy.py team.onnx [seed]

The description beside the file (team.onnx.json) says which task it was trained on.
"""

import json
import sys

import numpy as np
from lbforaging.foraging import ForagingEnv


def onnx_policy(path):
    """A function from (observations, memory) to (actions, memory), by onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]

    def act(obs, memory, actions):
        feed = {"obs": obs[None], "h_in": memory, "mask": np.ones((1, len(obs), actions), bool)}
        found = [np.asarray(one) for one in session.run(None, {name: feed[name] for name in names})]
        return found[0][0], found[-1]

    return act


def numpy_policy(path):
    """The same from the arrays of an NPZ file: one matrix for all agents or one for each, or shared factors."""
    data = np.load(path, allow_pickle=False)
    contract = json.loads(str(data["contract"]))
    own, hidden_size = contract["identity"], contract["hidden"]

    def rows(name):
        return data[name] if len(data[name]) == 1 else data[name][own]

    def linear(name, x):
        if name + ".V" in data:
            return ((x @ data[name + ".V"]) * rows(name + ".s")) @ data[name + ".U"] + rows(name + ".bias")
        return (x[:, None] @ rows(name + ".weight"))[:, 0] + rows(name + ".bias")

    def gru(x, hidden):
        a, b = np.split(linear("input", x), 3, axis=1), np.split(linear("hidden", hidden), 3, axis=1)
        reset, update = (1 / (1 + np.exp(-(a[gate] + b[gate]))) for gate in (0, 1))
        hidden = (1 - update) * np.tanh(a[2] + reset * b[2]) + update * hidden
        return hidden * rows("gate.mask") if "gate.mask" in data else hidden

    def act(obs, memory, actions):
        hidden, last = memory[0, :, :hidden_size], memory[0, :, hidden_size:]
        ids = np.eye(len(obs), contract["ids"], dtype=np.float32)
        x = np.concatenate([obs * contract["scale"], last, ids], axis=1)
        if contract["standardise"]:
            deviation = x.std(axis=1, keepdims=True)
            x = (x - x.mean(axis=1, keepdims=True)) / np.where(deviation == 0, 1, deviation)
        for step in contract["network"]:
            if step == "relu":
                x = np.maximum(x, 0)
            elif step == "gru":
                x = hidden = gru(x, hidden)
            else:
                x = linear(step, x)
        best = x.argmax(axis=1)
        one_hot = np.eye(actions, dtype=np.float32)[best][:, : last.shape[1]]
        return best, np.concatenate([hidden, one_hot], axis=1)[None]

    return act


def play(path, seed=0):
    """One greedy episode; returns the team's return and the number of steps."""
    with open(path + ".json", encoding="utf-8") as file:  # noqa: PTH123
        contract = json.load(file)["contract"]
    size, players, foods = (part.rstrip("pf") for part in contract["task"].partition("/")[2].split("-")[:3])
    side, team, actions = int(size.split("x")[0]), int(players), contract["actions"]
    env = ForagingEnv(
        players=team, min_player_level=1, max_player_level=2, min_food_level=1, max_food_level=None,
        field_size=(side, side), max_num_food=int(foods), sight=side, max_episode_steps=50,
        force_coop="coop" in contract["task"], grid_observation=False, penalty=0.0,
    )  # fmt: skip
    act = (onnx_policy if path.endswith(".onnx") else numpy_policy)(path)
    memory = np.zeros((1, team, contract["hidden"] + contract["last_action"] * actions), np.float32)
    obs, _ = env.reset(seed=seed)
    total, steps, over = 0.0, 0, False
    while not over:
        action, memory = act(np.stack(obs).astype(np.float32), memory, actions)
        obs, reward, over, _, _ = env.step(action.tolist())
        total, steps = total + float(sum(reward)), steps + 1
    return total, steps


if __name__ == "__main__":
    score, length = play(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(f"return {score:.3f} in {length} steps")
