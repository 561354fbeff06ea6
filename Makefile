# Each target works on a fresh machine: it sets up what it needs in .venv first. Needs Python 3.10 or
# later with venv, and make; no root, no compiler, no GPU.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Containers often set it; each run would compile the tests and pyclmm anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo demo-all test test-rest test-all lint check newcomer docs conformance strangers offline emulator faults drawing fuzz campaign clean

# Which driver, is it right, how it becomes fast, what it is good for.
demo: $(VENV)/.installed
	$(BIN)/python -m examples.demo

# Tables of five real products by every kernel.
demo-all: $(VENV)/.installed
	$(BIN)/python -m examples.demo --all

# What shows that all works here, in a few minutes: every function, kernel, law and fault path.
# For two cores: the third worker runs while a test of another waits.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal
test: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow"

# What test leaves out: other combinations of parameters, more random examples and rounds, the long waits. As in test,
# PoCL's optimizer is left out: conformance compiles every kernel as users do. SHARE=3 takes every third of them.
test-rest: $(VENV)/.installed-dev
	POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable $(PYTEST) -m "slow or hypothesis or rounds" $(if $(SHARE),--share $(SHARE))

test-all: test test-rest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test-all

# The pages and the reference as a site, out/site/index.html. Every warning is an error.
docs: $(VENV)/.installed-docs
	rm -rf out/site
	$(BIN)/python -m sphinx -W --keep-going -q -b html -c docs/site . out/site
	$(BIN)/python docs/site/check.py out/site

# Random calls against NumPy for SECONDS; those that fail are kept in tests/campaigns/failed_calls/ and replayed by test.
SECONDS ?= 120
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -W error tests/campaigns/fuzz.py --seconds $(SECONDS)

# Processes that are killed, damaged and unwritable caches, full disks, for SECONDS. DRIVER is one of conformance's, pocl-3.1 say.
campaign: $(VENV)/.installed-dev
	$(BIN)/python -m tests.campaigns.processes --seconds $(SECONDS) $(if $(DRIVER),--driver $(DRIVER))

# The README's commands and snippets in a fresh environment, from three folders; PoCL beside it; the Dockerfile's steps.
newcomer: $(VENV)/.installed-dev
	$(BIN)/python -m tests.install.newcomer

# Every driver that can be had without a device. SHARE=3 takes one of three tests, and leaves the page as it is.
conformance: $(VENV)/.installed-dev
	$(BIN)/python -m tests.conformance $(if $(SHARE),--share $(SHARE))
	$(BIN)/pytest -q tests/conformance/test_intel.py

# Tests of NumPy, CuPy and array-api-tests. SUITES="numpy cupy" chooses; DRIVER is one of conformance's;
# CUPY and ARRAY_API_TESTS name checkouts.
strangers: $(VENV)/.installed-dev
	$(BIN)/python -m tests.campaigns.strangers $(if $(SUITES),--suites $(SUITES)) $(if $(DRIVER),--driver $(DRIVER)) \
		$(if $(CUPY),--cupy $(CUPY)) $(if $(ARRAY_API_TESTS),--array-api-tests $(ARRAY_API_TESTS))

# Registers and spills of the kernels for AMD's and Intel's GPUs and for Arm's CPUs, compiled without one; undefined
# functions; products on an emulated Arm processor. SHARE as for conformance.
offline: $(VENV)/.installed-dev
	$(BIN)/python -m tests.conformance.resources $(if $(SHARE),--share $(SHARE))
	$(BIN)/pytest -q tests/conformance/test_link.py tests/conformance/test_newer.py
	$(BIN)/pytest -q -n 2 $(if $(SHARE),--share $(SHARE)) tests/conformance/arm_products.py

# Every kernel that AMD's GPUs are offered, compiled for them and executed in an emulator of their instructions.
# SHARE as for conformance.
emulator: $(VENV)/.installed-dev
	$(BIN)/python -m tests.conformance.emulated $(if $(SHARE),--share $(SHARE))

faults: $(VENV)/.installed-dev
	$(BIN)/python -m tests.campaigns.seeded_faults

# The import graph by folder, now and before there were folders; needs Graphviz's dot.
FLAT := d671d3b
drawing: $(VENV)/.installed-dev
	$(BIN)/python docs/drawing.py | dot -Tsvg -o docs/imports.svg
	mkdir -p out/flat && git archive $(FLAT) pyclmm | tar -x -C out/flat
	$(BIN)/python docs/drawing.py --tree out/flat | dot -Tsvg -o docs/imports_flat.svg

$(VENV)/.installed: setup.cfg setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[pocl,plot]" --config-settings editable_mode=compat
	$(BIN)/python tests/install/pocl_wheel.py
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" --config-settings editable_mode=compat
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]" --config-settings editable_mode=compat
	touch $@

clean:
	rm -rf $(VENV) .conformance .strangers build dist *.egg-info out
