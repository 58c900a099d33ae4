# Two commands do everything: `make demo` and `make test`. Both set up the environment first if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH_VENV := .venv-torch
TORCH_READY := $(TORCH_VENV)/.ready
TORCH_FLAGS ?=

.PHONY: demo test lint torch frameworks docs bench learn soak wheel lock clean

# The lock holds every package, so pip must not look for others (`--no-deps`): an older pip asked for `name[extra]` takes the
# newest release it finds instead of the locked one, and refuses it.
define new_environment
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "prism-marl needs Python 3.11 or newer: set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endef

$(READY): requirements.lock pyproject.toml
	$(call new_environment,$(VENV))
	touch $(READY)

demo: $(READY)
	$(BIN)/prism-marl demo --out runs/demo

# The documentation as a site in site/, to be opened as a file; a link that leads nowhere is an error. Its tools have an
# environment of their own.
SITE := .venv-docs
.PHONY: docs lock-docs clean-docs
$(SITE)/.ready: docs/tools/requirements.lock
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r docs/tools/requirements.lock
	touch $(SITE)/.ready

docs: $(READY) $(SITE)/.ready
	$(BIN)/python docs/tools/reference.py build/docs
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --quiet
	@echo "open site/index.html"

lock: lock-docs
lock-docs:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  docs/tools/requirements.in -o docs/tools/requirements.lock

clean: clean-docs
clean-docs:
	rm -rf $(SITE) site

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

test: lint
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow" # a file stays with one process: what its tests share is made once

# PyTorch, Flax and Haiku are too heavy for the lock and for `make test`, so they have an environment of their own. What the
# lock holds stays as it is there. pip reads TORCH_FLAGS, for example an index with builds of PyTorch for CPUs alone.
$(TORCH_READY): requirements.lock pyproject.toml tests_frameworks/requirements.txt
	$(call new_environment,$(TORCH_VENV))
	$(TORCH_VENV)/bin/python -m pip freeze --exclude-editable > $(TORCH_VENV)/locked.txt
	$(TORCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH_FLAGS) \
	  -c $(TORCH_VENV)/locked.txt -r tests_frameworks/requirements.txt
	touch $(TORCH_READY)

torch:
	@$(MAKE) --no-print-directory $(TORCH_READY) || { echo "make torch: $(TORCH_VENV) could not be made (the reason is above);" \
	  "it needs a network for PyTorch, Flax and Haiku, and 3 GB of disk" >&2; exit 1; }
	$(TORCH_VENV)/bin/basedpyright --project tests_frameworks --pythonpath $(TORCH_VENV)/bin/python
	$(TORCH_VENV)/bin/pytest tests_frameworks

frameworks: torch

bench: $(READY)
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/physics.py
	$(BIN)/python benchmarks/train_speed.py

learn: $(READY)
	$(BIN)/python benchmarks/learn.py

# Everything that can go wrong, for hours (docs/reliability.md, "Soaks"); the summaries are in runs/.
soak: $(READY)
	$(BIN)/pytest -m slow
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
	  --extra dev --extra lbforaging --extra mpe2 --extra mujoco --extra onnx --extra pettingzoo --extra ray --extra tensorboard --extra video pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) $(TORCH_VENV) .pytest_cache .ruff_cache .hypothesis build dist
