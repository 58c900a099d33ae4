"""The one exception that users see: a sentence that names the field and the remedy."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can fix. The command line prints it and exits with ``code``; nobody sees a traceback."""

    def __init__(self, message: str, *, code: int = 2):
        super().__init__(message)
        self.code = code


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest known one, or all of them when none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(known)}"
