"""The one exception that users see: a sentence that names the wrong field and says what to do."""

import difflib
import errno
import importlib.util
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """Something the user can correct. The command line prints the message, no traceback, and exits with ``code``."""

    def __init__(self, message: str, *, code: int = 2):
        super().__init__(message)
        self.code = code


MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def storage_error(error: OSError, remedy: str = "choose another file or folder") -> UserError:
    """The ``UserError`` for an ``OSError`` about a file: code 1 if the machine is at fault (a full disk), else 2."""
    path = error.filename2 or error.filename or "a file"
    problem = f"{path}: cannot be used ({error.strerror or error})"
    if error.errno in MACHINE:
        return UserError(f"{problem}; free some space or {remedy}", code=1)
    return UserError(f"{problem}; {remedy}")


def install_command(*packages: str, extra: str = "") -> str:
    """The command that installs packages, or an extra of this one, for the Python that runs now. Where this package is
    installed, from a wheel or from a clone, pip takes its extras from there."""
    words = [f"'{package}'" for package in ([f"prism-marl[{extra}]"] if extra else packages)]
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(str(python))} {' '.join(words)}"
    return f"{shlex.quote(str(python))} -m pip install {' '.join(words)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest known name, or all of them if none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(known)}"
