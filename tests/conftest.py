"""For the whole test run: shapes are checked at every call, programs are compiled fast and kept in a folder of its own.

Tests compile many small programs and run each a few times, so XLA's optimisations cost more than they bring here.
"""

import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

install_import_hook(("prism_marl.sharing", "prism_marl.networks", "prism_marl.learners"), "beartype.beartype")

_made: list[str] = []


def pytest_configure():
    """Workers of one run, and the processes that tests start, share the cache; it is never the user's own."""
    if "PRISM_MARL_TESTS" not in os.environ:
        folder = tempfile.mkdtemp(prefix="prism-marl-tests-")
        _made.append(folder)
        os.environ |= {
            "PRISM_MARL_TESTS": "1",
            "PRISM_MARL_CACHE": folder,
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
            "JAX_DEFAULT_MATMUL_PRECISION": "highest",  # as the command line has it, so that both compile the same
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_PLATFORMS": "cpu",
        }
        # Halves compiling again. XLA ends the process at a flag that it does not know, so only where it is known.
        if version("jaxlib").startswith("0.10."):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()


def pytest_unconfigure():
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


@pytest.fixture(autouse=True, scope="session")
def one_cache():
    """Programs that a test runs itself are kept where those of the command line are."""
    from prism_marl.runs import xla_cache

    xla_cache.install(Path(os.environ["PRISM_MARL_CACHE"]))


@pytest.fixture(autouse=True, scope="module")
def bounded_memory():
    """Compiled programs pile up over hundreds of tests; let go of them now and then, the folder still has them."""
    yield
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    if pages * os.sysconf("SC_PAGE_SIZE") > 2 * 2**30:
        import jax

        jax.clear_caches()


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """The folder of a small finished run, made once. Nobody may change it."""
    from prism_marl.runs import runner
    from tiny import foraging

    return runner.run(foraging(), tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Path:
    """The folder of the run that others interrupt, kill or spread, made once. Nobody may change it."""
    from prism_marl.runs import runner
    from tiny import long_roles

    return runner.run(long_roles(), tmp_path_factory.mktemp("undisturbed") / "run")
