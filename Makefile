# Two commands on a fresh machine: `make quickstart` and `make test`.
# The environment stands in .venv and is built when it is missing.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Without a GPU the CPU build of this release is enough. TORCH_FLAGS can name another index.
TORCH ?= $(if $(shell command -v nvidia-smi),torch>=2.11,torch==2.13.0)
TORCH_FLAGS ?=

.PHONY: quickstart test check lint types environment clean

quickstart: $(READY)
	$(BIN)/opsgen run pipelines/quickstart.toml

test: $(READY)
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not check and not slow and not timing"
	$(BIN)/pytest -q -m "timing and not check and not slow"

check: $(READY) lint types
	$(BIN)/pytest -q -m "not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell opsgen tests pipelines data README.md Makefile

types: $(READY)
	$(BIN)/mypy

environment: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(TORCH_FLAGS) "$(TORCH)"
	$(BIN)/pip install --quiet --editable ".[test]"
	touch $(READY)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
