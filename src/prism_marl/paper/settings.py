"""The paper's hyper-parameter tables beside the presets."""

import importlib.resources
import json
from typing import Any

from prism_marl.experiment import config
from prism_marl.experiment.presets import preset
from prism_marl.paper.target import Gathered, Result, Target


def setting_rows() -> list[dict[str, Any]]:
    """Every printed value, ours with preset ``paper``, and what the default is, which on LBF differs where the table
    keeps a team from learning."""
    text = importlib.resources.files("prism_marl.paper").joinpath("settings.json").read_text("utf-8")
    rows = []
    for task, printed in json.loads(text).items():
        if not isinstance(printed, dict):  # a note
            continue
        ours, default = (
            {path: value for path, value, _ in config.options(preset(task, "prism", variant))}
            for variant in ("paper", "default")
        )
        rows += [
            {"task": task, "field": path, "paper": paper, "ours": ours[path], "agrees": paper == ours[path],
             "default": default[path]}
            for path, paper in printed.items()
        ]  # fmt: skip
    return rows


def _result(gathered: Gathered) -> Result:
    return Result(tables={"Hyper-parameters": setting_rows()})


TARGETS = (Target("table-settings", "hyper-parameters of the three benchmarks (three tables)", _result),)
