"""For the whole test run: shapes are checked at every call, and compiled programs are kept in a folder of their own."""

import os
import shutil
import tempfile

from jaxtyping import install_import_hook

_KEY = "PRISM_MARL_CACHE"
_made: list[str] = []

install_import_hook(("prism_marl.sharing", "prism_marl.networks", "prism_marl.learners"), "beartype.beartype")


def pytest_configure():
    """Never the user's own cache. Workers of one run, and the processes that tests start, share it."""
    if os.environ.get("PRISM_MARL_TESTS") is None:
        os.environ["PRISM_MARL_TESTS"] = "1"
        os.environ[_KEY] = tempfile.mkdtemp(prefix="prism-marl-tests-")
        _made.append(os.environ[_KEY])


def pytest_unconfigure():
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)
