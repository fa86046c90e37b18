# SPDX-License-Identifier: MIT
# Each target does its own set-up in .venv, and is quick when nothing has changed.
#
#   make run ARGS="--env CartPole-v1"   IMPALA, by default on Atari Breakout
#   make test                           the quick tests, some minutes (ARGS are pytest's)
#   make test-near                      those of the packages at or above what has changed
#                                       since NEAR=REV
#   make gate                           what CI runs: lint, types, test, the C tests plain
#                                       and under AddressSanitizer, one minute of chaos
#   make check                          everything: lint, types, the slow tests too, chaos,
#                                       test-bare, c-tests, c-threads and cross beside
#                                       test-rdma
#   make test-bare                      what the absence of libfabric, torch and all other
#                                       optional packages can change, without them
#   make test-rdma                      the tests over RDMA verbs, in a virtual machine
#   make chaos                          ten minutes of all kinds of load and faults, and a
#                                       checker of what happened (CHAOS_SECONDS, CHAOS_SEED)
#   make mutants                        small faults in the source: do the tests catch them?
#   make cross                          the C code compiled for aarch64
#   make analyze                        gcc's static analyzer over the C code
#   make coverage                       which lines the tests run, in Python and in C
#   make docs                           the documentation as a site, in build/site
#   make bench                          this machine's table of speeds
#   make bench-all                      the same, with the rows for those who work on it
#   make doctor                         what works here, what does not, and the remedy
#   make clean                          drop what make built

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-near test-all test-bare test-rdma chaos mutants gate check \
	c-tests c-threads c-and-rdma cross analyze coverage docs lint types bench bench-all doctor \
	setup clean FORCE

# The interpreter of .venv; by default the first one of 3.11 or newer.
PYTHON ?=
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
TESTS = $(BIN)/python -m tests.run --workers $(WORKERS)

help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' Makefile

run: setup
	$(BIN)/python examples/impala_atari.py $(ARGS)

test: setup
	$(TESTS) $(if $(SKIP_C),--ignore=tests/c) $(ARGS)

NEAR ?=
test-near: setup
	$(TESTS) --near $(NEAR) $(ARGS)

# Without the C tests, which have a stage of their own.
test-all: setup
	$(TESTS) -m "" --ignore=tests/c $(ARGS)

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

mutants: setup
	$(BIN)/python -m tests.mutants.run $(ARGS)

# Each stage is a target of its own, so that one that failed can be run alone. They run
# one after the other, but for the virtual machine of test-rdma.
gate: STAGES := lint types test c-tests chaos
check: STAGES := lint types test-all chaos test-bare c-tests c-and-rdma

gate check: export CHAOS_SECONDS ?= 60
gate check: export CHAOS_SEED ?= 1
gate check: export SKIP_C := 1
gate check: setup
	@begun=$$(date +%s); spent=; \
	for stage in $(STAGES); do \
		start=$$(date +%s); \
		printf '\n==== %s\n' $$stage; \
		$(MAKE) --no-print-directory $$stage || \
			{ echo "==== $$stage failed: make $$stage runs it alone" >&2; exit 1; }; \
		spent="$$spent  $$stage $$(($$(date +%s) - start)) s"; \
	done; \
	printf '\n==== all passed in %s s:%s\n' $$(($$(date +%s) - begun)) "$$spent"

c-tests:
	@for name in none address,undefined; do \
		echo "== the C tests, sanitizer: $$name"; \
		$(MAKE) -s -C tests/c -j$$(($$(nproc) * 2)) check SANITIZER=$$name || exit 1; \
	done

c-threads:
	@echo "== the C tests under ThreadSanitizer"
	@$(MAKE) -s -C tests/c -j$$(($$(nproc) * 2)) check SANITIZER=thread

# The virtual machine takes the longest, so the rest gives way to it.
c-and-rdma:
	@mkdir -p build; \
	$(MAKE) --no-print-directory test-rdma >build/rdma.log 2>&1 & rdma=$$!; \
	trap "kill $$rdma" INT TERM; \
	failed=0; for what in c-threads cross; do \
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

bench-all: setup
	$(BIN)/python -m tests.bench $(ARGS)

doctor: setup
	$(BIN)/mooactor doctor $(ARGS)

setup: $(STAMPS)/extension

clean:
	rm -rf $(VENV) build dist *.egg-info
	find mooactor -name '*.so' -delete

# ---- how .venv comes to be, one stamp for each step ----

$(STAMPS)/venv:
	@python=$$(sh .ci/prerequisites $(PYTHON)) || exit 1; \
	echo "== creating $(VENV) with $$python"; \
	test -x $(BIN)/python || "$$python" -m venv $(VENV)
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
