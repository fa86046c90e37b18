# SPDX-License-Identifier: MIT
# Each target does its own set-up in .venv, and is quick when nothing has changed.
#
#   make run ARGS="--env CartPole-v1"   IMPALA, by default on Atari Breakout
#   make test                           the tests (ARGS are pytest's)
#   make test-rdma                      the tests over RDMA verbs, in a virtual machine
#   make check                          format, lint, types, tests: what CI runs
#   make bench                          this machine's table of speeds
#   make doctor                         what works here, what does not, and the remedy
#   make clean                          drop what make built

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-rdma check lint types bench doctor setup clean

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Machines without an NVIDIA driver take PyTorch's CPU wheels, a tenth of the size.
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi),,--extra-index-url \
	https://download.pytorch.org/whl/cpu --retries 1)
C_SOURCES := setup.py cext/build.py $(wildcard cext/*/*.[ch])
ARGS ?=

help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' Makefile

run: setup
	$(BIN)/python examples/impala_atari.py $(ARGS)

test: setup
	$(BIN)/python -m pytest $(ARGS)

# Says what it does, and skips, with the reason, where QEMU is not to be had.
test-rdma: setup
	PYTHON=$(CURDIR)/$(BIN)/python tests/rdma_vm/run.sh $(ARGS)

check: lint types test

lint: setup
	$(BIN)/python -m ruff format --check --quiet .
	$(BIN)/python -m ruff check .

types: setup
	$(BIN)/python -m mypy

bench: setup
	$(BIN)/mooactor bench $(ARGS)

doctor: setup
	$(BIN)/mooactor doctor $(ARGS)

setup: $(STAMPS)/extension

clean:
	rm -rf $(VENV) build dist *.egg-info
	find mooactor -name '*.so' -delete

# ---- how .venv comes to be, one stamp for each step ----

$(STAMPS)/venv:
	@sh .ci/prerequisites "$(PYTHON)"
	@echo "== creating $(VENV) with $(PYTHON)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# torch first and through the constraints: unpinned it pulls gigabytes of CUDA.
$(STAMPS)/torch: constraints.txt | $(STAMPS)/venv
	@echo "== installing $$(grep '^torch' constraints.txt) (some minutes, once)"
	@$(PIP) install --quiet $(TORCH_INDEX) -c constraints.txt torch
	@touch $@

$(STAMPS)/packages: pyproject.toml $(STAMPS)/torch
	@echo "== installing mooactor with everything the examples and tests need"
	@$(PIP) install --quiet -c constraints.txt -e '.[all]'
	@touch $@

$(STAMPS)/extension: $(C_SOURCES) $(STAMPS)/packages
	@echo "== compiling the C data plane"
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@
