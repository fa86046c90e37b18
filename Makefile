# SPDX-License-Identifier: MIT
# Each target does its own set-up in .venv, and is quick when nothing has changed.
#
#   make run ARGS="--env CartPole-v1"   IMPALA, by default on Atari Breakout
#   make test                           the quick tests, some minutes (ARGS are pytest's)
#   make test-all                       those and the slow ones
#   make test-bare                      the quick ones that need nothing optional, without
#                                       libfabric, torch and all other optional packages
#   make test-rdma                      the tests over RDMA verbs, in a virtual machine
#   make chaos                          ten minutes of all kinds of load and faults, and a
#                                       checker of what happened (CHAOS_SECONDS, CHAOS_SEED)
#   make check                          what CI runs, stage by stage: lint, types, test-all,
#                                       chaos (one minute), test-bare, sanitizers and cross
#                                       beside test-rdma
#   make cross                          the C code compiled for aarch64
#   make analyze                        gcc's static analyzer over the C code
#   make coverage                       which lines the tests run, in Python and in C
#   make docs                           the documentation as a site, in build/site
#   make bench                          this machine's table of speeds
#   make doctor                         what works here, what does not, and the remedy
#   make clean                          drop what make built

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-all test-bare test-rdma chaos sanitizers \
	c-and-rdma cross check analyze coverage docs lint types bench doctor setup clean FORCE

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
C_SOURCES := setup.py cext/build.py $(wildcard cext/*/*.[ch] cext/*/*/*.[ch])
ARGS ?=
# Hundreds of processes start in the tests: each would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait more than they compute: two processes more than there are cores run them, up
# to a limit; the tests of a file stay together, in the order of tests/conftest.py.
# ARGS="-n0" runs all in this one.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 7 ? n + 2 : 8)))
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' Makefile

run: setup
	$(BIN)/python examples/impala_atari.py $(ARGS)

test: setup
	$(PYTEST) $(ARGS)

# In `make check` without the C tests, which its stage `sanitizers` runs.
test-all: setup
	$(PYTEST) -m "not soak" $(if $(CHECKED),--ignore=tests/c) $(ARGS)

# In build/bare, with a virtual environment of its own.
test-bare:
	PYTHON="$(PYTHON)" WORKERS="$(WORKERS)" .ci/bare $(ARGS)

# Says what it does, and skips, with the reason, where QEMU is not to be had.
test-rdma: setup
	PYTHON=$(CURDIR)/$(BIN)/python tests/rdma_vm/run.sh $(ARGS)

# The seed is printed; with it, CHAOS_SEED=…, the same faults come again. tests/chaos/run.py
# has the other variables.
chaos: setup
	$(BIN)/python -m tests.chaos.run

# Each stage is a target of its own, so that one that failed can be run alone. They run
# one after the other, but for the virtual machine of test-rdma.
STAGES := lint types test-all chaos test-bare c-and-rdma

check: export CHAOS_SECONDS ?= 60
check: export CHAOS_SEED ?= 1
check: export CHECKED := 1
check: setup
	@begun=$$(date +%s); \
	for stage in $(STAGES); do \
		start=$$(date +%s); \
		printf '\n==== %s\n' $$stage; \
		$(MAKE) --no-print-directory $$stage || \
			{ echo "==== $$stage failed: make $$stage runs it alone" >&2; exit 1; }; \
		echo "==== $$stage passed in $$(($$(date +%s) - start)) s"; \
	done; \
	printf '\n==== all passed in %s s\n' $$(($$(date +%s) - begun))

# The tests wait more than they compute, so there are two for each core.
sanitizers:
	@for name in address,undefined thread; do \
		echo "== the C tests under the $$name sanitizer"; \
		$(MAKE) -s -C tests/c -j$$(($$(nproc) * 2)) check SANITIZER=$$name || exit 1; \
	done

# The virtual machine takes the longest, so the rest gives way to it.
c-and-rdma:
	@mkdir -p build; \
	$(MAKE) --no-print-directory test-rdma >build/rdma.log 2>&1 & rdma=$$!; \
	trap "kill $$rdma" INT TERM; \
	failed=0; for what in sanitizers cross; do \
		nice -n 5 $(MAKE) --no-print-directory $$what || failed=1; \
	done; \
	wait $$rdma || { failed=1; echo "==== test-rdma failed" >&2; }; \
	cat build/rdma.log; exit $$failed

cross:
	@.ci/cross

coverage: $(STAMPS)/coverage setup
	@PYTHON=$(BIN)/python WORKERS="$(WORKERS)" .ci/coverage $(ARGS)

docs: $(STAMPS)/docs setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "== build/site/index.html"

analyze:
	@.ci/analyze $(ARGS)

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

# Not among the packages above: the tests need none of it.
$(STAMPS)/docs $(STAMPS)/coverage: $(STAMPS)/packages
	@echo "== installing what make $(@F) needs"
	@$(PIP) install --quiet -c constraints.txt 'mooactor[$(@F)]'
	@touch $@

# Written when the answer changes: libfabric may come, or go, after the first build.
build/libfabric: FORCE | $(STAMPS)/packages
	@$(BIN)/python cext/build.py
FORCE:

MISSING := $(if $(wildcard mooactor/tensors/_cext*.so),,FORCE)
$(STAMPS)/extension: $(C_SOURCES) build/libfabric $(STAMPS)/packages $(MISSING)
	@echo "== compiling the C data plane"
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@
