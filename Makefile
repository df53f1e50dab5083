# Each target does all the set-up it needs: CPython >= 3.10 with pip, and make, are enough to start from.
# `make PYTHON=python3.12 test` uses another interpreter.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# An environment that is there has the interpreter that it was made with.
ifneq ($(origin PYTHON),file)
ifeq ($(filter gpu clean help,$(MAKECMDGOALS)),)
ifneq ($(shell test -x $(BIN)/python && echo there),)
ifneq ($(shell $(PYTHON) -V 2>&1),$(shell $(BIN)/python -V 2>&1))
$(error $(VENV) has $(shell $(BIN)/python -V 2>&1), and PYTHON=$(PYTHON) is $(shell $(PYTHON) -V 2>&1): `make clean` first)
endif
endif
endif
endif

# Byte-compiling all of torch doubles the time of the installation, so it is left to Python, which does it once for what is
# imported. The variable would forbid that.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -qq install --no-compile --constraint constraints.txt
WORKERS := -n auto --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all lint bench gpu clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | sort | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-10s %s\n' "$$name" "$$text"; done

demo: $(VENV)/installed-demo ## train an LSTM to read scanned digits
	$(BIN)/anyrnn train digits

# Tests that measure time run by themselves, after the others. Status 5 says there are none.
TIMED = $(shell grep -rl --include='*.py' 'mark.timing' tests)

test: $(VENV)/installed-dev ## the tests
	$(BIN)/python -m pytest $(WORKERS) -m "not slow and not timing"
	$(BIN)/python -m pytest -m "timing and not slow" $(TIMED) || test $$? -eq 5

test-all: $(VENV)/installed-frameworks ## the tests, and the slow ones: whole grids, fuzzers, soaks
	$(BIN)/python -m pytest $(WORKERS) -o faulthandler_timeout=1800 --hypothesis-profile=thorough -m "not timing"
	$(BIN)/python -m pytest -o faulthandler_timeout=1800 -m "timing" $(TIMED) || test $$? -eq 5

lint: $(VENV)/installed-dev ## ruff (lint and format) and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/installed-bench ## the table of speeds against other libraries
	$(BIN)/python -m benchmarks

gpu: ## checks and measures on a CUDA device, with the torch and Triton that PYTHON has: nothing is installed
	PYTHONPATH=src:. $(PYTHON) -m benchmarks.gpu

clean: ## remove the environment and the caches, not what was trained
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# What is installed is recorded by empty files in the environment, so that the second time costs nothing.
FAILED = { echo "The installation stopped: see the message above. After a broken or interrupted one, start over with 'make clean'." >&2; exit 1; }

$(VENV)/installed-demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing anyrnn and torch into $(VENV): about a minute, more on a slow network."
	@$(INSTALL) pip hatchling editables || $(FAILED)
	@$(INSTALL) --no-build-isolation --editable '.[all]' || $(FAILED)
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed-demo
	@echo "Installing what the tests and checks need."
	@$(INSTALL) --group dev || $(FAILED)
	@touch $@

$(VENV)/installed-frameworks: $(VENV)/installed-dev
	@echo "Installing the frameworks that all tests train in."
	@$(INSTALL) --group frameworks || $(FAILED)
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed-dev
	@echo "Installing the libraries to compare with."
	@$(INSTALL) --group bench || $(FAILED)
	@touch $@

# An environment whose interpreter has been removed is built anew.
$(shell test -x $(BIN)/python || rm -f $(VENV)/installed-*)

# Some Linux distributions ship Python without ensurepip; then the system's pip puts a pip there.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || \
		{ echo "'$(PYTHON)' was not found. Install CPython 3.10 or newer, or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "anyrnn needs CPython 3.10 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
			"Name another: make PYTHON=python3.12" >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
		$(PYTHON) -m venv --clear $(VENV); \
	else \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --disable-pip-version-check -qq install --no-compile --constraint constraints.txt pip \
			--target "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; \
	fi || $(FAILED)
