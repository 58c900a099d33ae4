"""The one exception that users see: a sentence that names the field and the remedy."""

import difflib
import errno
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can fix. The command line prints it and exits with ``code``; nobody sees a traceback."""

    def __init__(self, message: str, *, code: int = 2):
        super().__init__(message)
        self.code = code


MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def storage_error(error: OSError, remedy: str = "choose another file or folder") -> UserError:
    """What the system said about a file: a name that cannot be used is the user's fault, a full disk the machine's."""
    place = error.filename2 or error.filename or "a file"
    said = f"{place}: cannot be used ({error.strerror or error})"
    if error.errno in MACHINE:
        return UserError(f"{said}; free some space or {remedy}", code=1)
    return UserError(f"{said}; {remedy}")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest known one, or all of them when none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(known)}"
