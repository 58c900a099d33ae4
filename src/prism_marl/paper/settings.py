"""The paper's hyper-parameter tables beside the presets."""

import importlib.resources
import json
from typing import Any

from prism_marl.experiment import config
from prism_marl.experiment.presets import preset
from prism_marl.paper.target import Gathered, Result, Target


def setting_rows() -> list[dict[str, Any]]:
    """Every printed value and ours."""
    text = importlib.resources.files("prism_marl.paper").joinpath("settings.json").read_text("utf-8")
    rows = []
    for task, printed in json.loads(text).items():
        if not isinstance(printed, dict):  # a note
            continue
        ours = {path: value for path, value, _ in config.options(preset(task, "prism"))}
        for path, paper in printed.items():
            rows.append(
                {"task": task, "field": path, "paper": paper, "ours": ours[path], "agrees": paper == ours[path]}
            )
    return rows


def _result(gathered: Gathered) -> Result:
    return Result(tables={"Hyper-parameters": setting_rows()})


TARGETS = (Target("table-settings", "hyper-parameters of the three benchmarks (three tables)", _result),)
