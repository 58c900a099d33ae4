"""What is checked of the arguments with which layers are made: other people's code makes them, too."""

import functools
from collections.abc import Callable
from typing import Any

from prism_marl.errors import UserError, nearest


def checked_linear(linear: Callable[..., Any], kinds: tuple[str, ...]) -> Callable[..., Any]:
    """A method's ``linear`` that refuses wrong arguments in words."""

    @functools.wraps(linear)
    def checked(self: Any, fan_in: int, fan_out: int, *, identities: int, kind: Any, **rest: Any) -> Any:
        for name, size in {"fan_in": fan_in, "fan_out": fan_out, "identities": identities}.items():
            if size < 1:
                raise UserError(f"{name}: {size} is not a positive number")
        if kind not in kinds:
            raise UserError(f"kind: there is no '{kind}'; {nearest(str(kind), kinds)}")
        return linear(self, fan_in, fan_out, identities=identities, kind=kind, **rest)

    return checked
