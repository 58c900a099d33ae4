"""Parts of a task name: a number of agents, and settings after ``?``."""

import ast
import re
from typing import Any

from prism_marl.errors import UserError


def read_agents(family: str, variant: str, fewest: int, most: int, example: str) -> int:
    """The number of agents of a task ``family/<agents>``."""
    if not re.fullmatch("[0-9]{1,9}", variant):
        raise UserError(
            f"task: '{family}/{variant}' must end in the number of agents, {fewest} to {most}, such as '{example}'"
        )
    agents = int(variant)
    if (near := min(max(agents, fewest), most)) != agents:
        raise UserError(f"task: {family} takes {fewest} to {most} agents, not {agents}; try '{family}/{near}'")
    return agents


def read_settings(name: str, query: str) -> dict[str, Any]:
    """``a=1&b=true&c=word`` as keyword arguments: numbers, true, false and none; other values are words."""
    found: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, text = part.partition("=")
        if not key.isidentifier() or not equals or not text or key in found:
            raise UserError(
                f"task: '{part}' in '{name}' is not name=value or comes twice; write ?max_cycles=25&horizon=25"
            )
        found[key] = _value(text)
    return found


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, int | float) else text


def read_places(variant: str) -> tuple[str, int | None]:
    """What stands before ``-places<agents>``, and that number; None without it."""
    found = re.fullmatch("(.*)-places([0-9]{1,9})", variant)
    return (found[1], int(found[2])) if found else (variant, None)


def check_places(task: str, places: int, team: int, most: int) -> None:
    """Raise unless observations have room for the team, and for no more agents than a task takes."""
    if (near := min(max(places, team), most)) != places:
        raise UserError(f"task: '{task}' has places {places}, not {team} (its agents) to {most}; try {near}")


def with_setting(name: str, setting: str) -> str:
    """The task name with one more setting, in quotes."""
    return f"'{name}{'&' if '?' in name else '?'}{setting}'"
