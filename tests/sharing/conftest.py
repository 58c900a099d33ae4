"""These tests compile many tiny functions and run each once: compiling fast matters, running fast does not."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
