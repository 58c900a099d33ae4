"""Run folders with plausible made-up data, in the layout that the runner writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

FOOTPRINT = [
    ("nops", "NoPS", 0, 141_000),
    ("fups", "FuPS", 45_100, 0),
    ("fups_id", "FuPS+ID", 45_300, 0),
    ("seps", "SePS", 0, 94_000),
    ("snp", "SNP-PS", 47_000, 576),
    ("adaps", "AdaPS", 47_000, 384),
    ("kaleidoscope", "Kaleidoscope", 45_300, 44_100),
    ("prism", "Prism", 52_800, 310),
]
CEILING = {
    "prism": 0.93, "kaleidoscope": 0.86, "fups_id": 0.80, "fups_id_svd": 0.84, "fups": 0.66, "nops": 0.58,
    "seps": 0.74, "snp": 0.78, "adaps": 0.76,
}  # fmt: skip
LAYERS = {"fc1": 27, "fc2": 64, "fc3": 64, "fc4": 6}


def make_run(
    folder: Path,
    *,
    method: str = "prism",
    task: str = "lbf/10x10-3p-3f",
    evaluations: int = 25,
    seeds: int = 5,
    agents: int = 3,
    spectra: bool | None = None,
    replays: int = 1,
    seed: int = 0,
    name: str | None = None,
) -> Path:
    """A complete run folder ``folder/name``; returns its path."""
    rng = np.random.default_rng(seed)
    path = folder / (name or f"{method}-{task.replace('/', '-')}-{seed}")
    path.mkdir(parents=True)
    interval = 50_000
    settings = {
        "steps": (evaluations - 1) * interval,
        "seeds": seeds,
        "seed": 0,
        "envs": 1,
        "eval_every": interval,
    }
    config = {
        "format": 1,
        "task": task,
        "sharing": {"method": method, "common": 0.6, "ortho": 0.01, "diversity": 5.0},
        "learner": {"name": "qmix", "gamma": 0.99, "rate": 3e-4, "batch": 32},
        "network": {"width": 64},
        "run": settings,
    }
    write_json(path / "config.json", config)
    machine = {
        "prism_marl": "0.1.0",
        "jax": "0.7.0",
        "device": "cpu",
        "cores": 2,
        "started": "2026-01-05T09:00:00Z",
    }
    write_json(path / "machine.json", machine)
    _write_rows(path, rng, method, evaluations, seeds, interval)
    write_jsonl(path / "diversity.jsonl", differences(rng, method, evaluations, seeds, agents, interval))
    footprint = [
        {"method": key, "label": label, "parameters": shared + own, "shared": shared, "private": own,
         "bytes": 4 * (shared + own), "ratio": own / (shared + own)}
        for key, label, shared, own in FOOTPRINT
    ]  # fmt: skip
    write_json(path / "footprint.json", footprint)
    if spectra if spectra is not None else method in ("prism", "fups_id_svd"):
        _write_spectra(path / "spectra", rng, evaluations, seeds, agents, interval)
    for index in range(replays):
        (path / "replays").mkdir(exist_ok=True)
        write_json(path / "replays" / f"seed{index}.json", foraging_episode(rng, agents, index))
    return path


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _write_rows(path: Path, rng, method: str, evaluations: int, seeds: int, interval: int) -> None:
    evals, trains, timings = [], [], []
    talent = rng.normal(1.0, 0.05, size=seeds)
    onset = rng.uniform(0.15, 0.35, size=seeds)
    for index in range(evaluations):
        progress = index / max(evaluations - 1, 1)
        for who in range(seeds):
            step = index * interval + int(rng.integers(0, 50)) * (index > 0)
            skill = 1 / (1 + np.exp(-(progress - onset[who]) * 12))
            score = float(np.clip(CEILING.get(method, 0.7) * talent[who] * skill + rng.normal(0, 0.025), 0, 1))
            key = {"evaluation": index, "seed": who, "step": step}
            measured = {
                "return": score,
                "length": 50 - 30 * score + rng.normal(0, 0.8),
                "collected": 3 * score,
            }
            evals.append({**key, "episodes": 100, "updates": step // 50, **measured})
            if index:
                loss = 0.4 * np.exp(-3 * progress) * rng.uniform(0.8, 1.2)
                trains.append({
                    **key, "loss": loss + 0.05, "td_loss": loss,
                    "diversity": -0.4 * progress + rng.normal(0, 0.01),
                    "orthogonality": 0.02 * np.exp(-6 * progress) * rng.uniform(0.8, 1.2),
                    "diversity_coefficient": 0.1 + progress * rng.uniform(0.8, 1.2),
                    "epsilon": max(0.05, 1 - 4 * progress),
                    "grad_norm": rng.uniform(0.5, 2.0) * (1 + progress),
                })  # fmt: skip
        if index:
            seconds = 12.0 + rng.normal(0, 0.3)
            timings.append({
                "evaluation": index, "seconds": seconds, "steps": interval * seeds,
                "steps_per_second": interval * seeds / seconds, "compile_seconds": 9.0 if index == 1 else 0.0,
            })  # fmt: skip
    write_jsonl(path / "eval.jsonl", evals)
    write_jsonl(path / "train.jsonl", trains)
    write_jsonl(path / "timing.jsonl", timings)


def differences(rng, method: str, evaluations: int, seeds: int, agents: int, interval: int) -> list[dict[str, Any]]:
    """Agents of two kinds part during training, and gradients that agreed no longer do."""
    kind = np.arange(agents) % 2
    own = {"fups": 0.0, "fups_id": 0.6}.get(method, 1.0)
    rows = []
    for index in range(0, evaluations, 2):
        progress = index / max(evaluations - 1, 1)
        for who in range(seeds):
            table = 0.05 + own * progress * (0.15 + 0.6 * (kind[:, None] != kind)) + rng.uniform(0, 0.05)
            table = np.where(np.eye(agents, dtype=bool), 0.0, table * (own > 0))
            mean = float(table.sum() / max(agents * (agents - 1), 1))
            private = 0.4 * progress * (method not in ("fups", "fups_id"))
            row = {
                "evaluation": index, "seed": who, "step": index * interval, "snd": mean, "snd_chance": 0.71,
                "snd_by_matrices": 0.8 * mean * (private > 0), "private_share": private, "gradient_cosine": 0.5,
            }  # fmt: skip
            for depth, layer in enumerate(("fc1", "gru.input", "gru.hidden", "fc2", "fc3", "fc4")):
                row[f"private_share.{layer}"] = private * (1 + depth) / 4
                row[f"gradient_cosine.{layer}"] = 0.8 - progress * (0.3 + 0.2 * depth)
                row[f"gradients_opposed.{layer}"] = min(1.0, progress * depth / 5)
            rows.append({**row, "agents": list(range(agents)), "distances": table.tolist()})
    return rows


def _write_spectra(folder: Path, rng, evaluations: int, seeds: int, agents: int, interval: int) -> None:
    """Masks start equal and drift apart, the weak directions first."""
    folder.mkdir()
    thresholds = {name: rng.uniform(size=(seeds, agents, rank)) for name, rank in LAYERS.items()}
    for index in range(evaluations):
        progress = index / max(evaluations - 1, 1)
        tensors, metadata = {}, {"evaluation": str(index), "steps": json.dumps([index * interval] * seeds)}
        for name, rank in LAYERS.items():
            common = round(0.6 * rank)
            metadata[f"common.{name}"] = str(common)
            values = 1.6 * np.exp(-2.5 * np.arange(rank) / rank) * (1 + 0.6 * progress * np.cos(np.arange(rank)))
            spectrum = np.tile(values, (seeds, agents, 1))
            spectrum[..., common:] *= 0.9 + 0.1 * thresholds[name][..., common:]  # who starts lowest ends first
            on = thresholds[name] > 0.55 * progress
            on[..., :common] = True
            tensors[f"{name}.spectrum"] = (spectrum * on).astype(np.float32)
            tensors[f"{name}.mask"] = on.astype(np.uint8)
        save_file(tensors, folder / f"{index:06d}.safetensors", metadata=metadata)


def foraging_episode(rng, agents: int = 3, index: int = 0) -> dict[str, Any]:
    """Agents walk to the nearest food and eat it."""
    where = rng.integers(0, 10, size=(agents, 2)).astype(float)
    food = {key: rng.integers(1, 9, size=2).astype(float) for key in range(3)}
    frames, eaten = [], 0
    for step in range(24):
        shapes = [
            {
                "kind": "square",
                "x": x + 0.5,
                "y": y + 0.5,
                "size": 0.6,
                "colour": -1,
                "label": "2",
                "glyph": "f",
            }
            for x, y in food.values()
        ]
        for who in range(agents):
            x, y = where[who] + 0.5
            near = any(np.abs(place - where[who]).sum() <= 1 for place in food.values())
            shapes.append({"kind": "disc", "x": x, "y": y, "size": 0.8, "colour": who, "label": str(who + 1),
                           "glyph": "A", "ring": bool(near)})  # fmt: skip
        frames.append({"width": 10, "height": 10, "grid": True, "caption": f"step {step}",
                       "extra": {"collected": eaten / 3}, "shapes": shapes})  # fmt: skip
        for key, place in list(food.items()):
            if step > 4 and (np.abs(where - place).sum(axis=1) <= 1).sum() >= 2:
                del food[key]
                eaten += 1
        if not food:
            break
        target = next(iter(food.values()))
        for who in range(agents):
            gap = target - where[who]
            if np.abs(gap).sum() > 1:
                axis = int(np.abs(gap).argmax())
                where[who, axis] += np.sign(gap[axis])
    return {"title": f"greedy episode, seed {index}", "return": eaten / 3, "frames": frames}
