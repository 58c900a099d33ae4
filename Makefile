# Two commands do everything: `make demo` and `make test`. Both set up the environment first if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench learn soak wheel lock clean

# The lock holds every package, so pip must not look for others (`--no-deps`): an older pip asked for `name[extra]` takes the
# newest release it finds instead of the locked one, and refuses it.
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "prism-marl needs Python 3.11 or newer: set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

demo: $(READY)
	$(BIN)/prism-marl demo --out runs/demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

test: lint
	$(BIN)/pytest -n 2

bench: $(READY)
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/physics.py
	$(BIN)/python benchmarks/train_speed.py

learn: $(READY)
	$(BIN)/python benchmarks/learn.py

# Everything that can go wrong, for hours (docs/reliability.md, "Soaks"); the summaries are in runs/.
soak: $(READY)
	$(BIN)/python benchmarks/soak_kills.py --kills 50 --out runs/soak.json
	$(BIN)/python benchmarks/soak_writers.py
	$(BIN)/python benchmarks/soak_fuzz.py --inputs 10000
	$(BIN)/python benchmarks/soak_chaos.py --minutes 60
	$(BIN)/python benchmarks/soak_sweep.py --experiments 200
	$(BIN)/python benchmarks/soak_memory.py

# Wheel and source archive in dist/, tried in clean environments of every Python that is found (docs/release.md).
wheel: $(READY)
	$(BIN)/python release/check.py

# The lock names packages and hashes only; it serves Python 3.11 to 3.13.
lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --extra dev --extra lbforaging --extra mujoco --extra onnx --extra pettingzoo --extra ray --extra tensorboard --extra video pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist
