# Every target makes its own virtual environment first: nothing but Python 3.11+ and make is needed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench proto clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP)  ## watch GPU replicas follow a load from zero up and back (about a minute)
	$(BIN)/tidegate demo $(ARGS)

test: $(STAMP)  ## run the tests (ARGS="-k name" to choose)
	$(BIN)/python -m pytest $(ARGS)

lint: $(STAMP)  ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## measure, and write benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py $(ARGS)

proto: $(STAMP)  ## regenerate the gRPC stubs from the .proto
	$(BIN)/pip install --quiet --group proto
	$(BIN)/python -m scaler.keda.generate

clean:  ## remove the environment and caches
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# pip 25.1 is the first that knows dependency groups (PEP 735).
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tidegate needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) -V). Try: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable . --group dev
	@touch $@
