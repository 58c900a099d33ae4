"""For the whole test run: shapes are checked at every call, programs are compiled fast and kept in a folder of its own.

Tests compile many small programs and run each a few times, so XLA's optimisations cost more than they bring here.
"""

import ctypes
import fcntl
import gc
import os
import shutil
import tempfile
import threading
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jaxtyping import install_import_hook

if TYPE_CHECKING:
    from prism_marl.experiment.experiment import Experiment

install_import_hook(("prism_marl.sharing", "prism_marl.networks", "prism_marl.learners"), "beartype.beartype")

QUICKLY = (
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 --xla_cpu_opt_preset=FAST_COMPILE"
)
LONG = (  # files that take over ten seconds, longest first
    "training/test_matrix", "training/test_matd3_on_rows", "test_attacks", "sharing/test_ceilings", "test_runner",
    "test_examples", "learners/test_qmix", "sharing/test_registry", "test_deploy_page", "learners/test_matd3",
    "test_going_on", "test_pages", "sharing/test_specialisation", "sharing/test_hooks", "training/test_matd3_compiled",
    "test_checkpoint", "learners/test_mappo", "sharing/test_products", "envs/test_smacv2", "envs/test_adapters",
    "training/test_on_policy", "training/test_recurrent_steps", "test_check_learner", "sharing/test_layers",
)  # fmt: skip
_made: list[str] = []


def pytest_configure(config):
    """Workers of one run, and the processes that tests start, share the cache; it is never the user's own. Workers also
    share the runs that many tests only read."""
    config.option.loadscopereorder = False  # files begin in the order of collection, not by their number of tests
    if "PRISM_MARL_TESTS" not in os.environ:
        made = tempfile.mkdtemp(prefix="prism-marl-tests-")
        _made.append(made)
        folder = str(Path(made, "cache"))
        os.environ |= {
            "PRISM_MARL_TESTS": made,
            "PRISM_MARL_CACHE": folder,
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
            "JAX_DEFAULT_MATMUL_PRECISION": "highest",  # as the command line has it, so that both compile the same
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_PLATFORMS": "cpu",
        }
        # Halves compiling again. XLA ends the process at a flag that it does not know, so only where it is known.
        if version("jaxlib").startswith("0.10."):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}".strip()


def pytest_collection_modifyitems(items):
    """Long files begin first: one that began last would keep one worker busy alone."""
    places = {f"tests/{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))


def pytest_collection_finish():
    """Tracing makes many objects that live for long; by default each few of them have all that are there looked at."""
    gc.collect()
    gc.freeze()  # modules and tests stay until the end
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure():
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


@pytest.fixture(autouse=True, scope="session")
def one_cache():
    """Programs that a test runs itself are kept where those of the command line are."""
    from prism_marl.runs import xla_cache

    xla_cache.install(Path(os.environ["PRISM_MARL_CACHE"]))


@pytest.fixture(autouse=True, scope="session")
def one_context():
    """JAX lowers each program in an MLIR context of its own, which for a small program costs more than all the rest of
    its lowering. Here some hundred follow each other in one; where JAX has no such place, nothing is changed."""
    from jax._src.interpreters import mlir

    make = getattr(mlir, "make_ir_context", None)
    if make is None:
        yield
        return
    mine = threading.local()

    def shared():
        if getattr(mine, "left", 0) == 0:
            mine.context, mine.left = make(), 200  # what programs leave in a context is let go of with it
        mine.left -= 1
        return mine.context

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlir, "make_ir_context", shared)
        yield


@pytest.fixture(autouse=True, scope="module")
def bounded_memory():
    """Compiled programs pile up over hundreds of tests; let go of them now and then, the folder still has them."""
    yield
    if _resident() > 2 * 2**30:
        _give_back()  # often that is enough
    if _resident() > 2 * 2**30:
        import jax

        jax.clear_caches()
        _give_back()


def _resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def _give_back() -> None:
    """What was freed goes back to the system, which the C library does not do by itself for memory in pieces."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@pytest.fixture(scope="session")
def trained() -> Path:
    """The folder of a small finished run, made once. Nobody may change it."""
    from tiny import foraging

    return made_once("trained", foraging())


@pytest.fixture(scope="session")
def undisturbed() -> Path:
    """The folder of the run that others interrupt, kill or spread, made once. Nobody may change it."""
    from tiny import long_roles

    return made_once("undisturbed", long_roles())


def made_once(name: str, experiment: "Experiment") -> Path:
    """The folder of a run that the worker makes who needs it first; another one that needs it meanwhile waits."""
    from prism_marl.runs import runner

    folder = Path(os.environ["PRISM_MARL_TESTS"], "runs", name)
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return folder if (folder / "done").exists() else runner.run(experiment, folder)
