"""Tests of what needs PyTorch, Flax or Haiku; `make torch` runs them in an environment of its own."""

import os

os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "OMP_NUM_THREADS": "1"}  # double: equal means equal
