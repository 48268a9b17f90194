# make demo    the proof: workers killed in mid-step, nothing lost, nothing repeated
# make test    every test that this machine can run; what it cannot run is listed as "not run"
# Both need Python 3.10 or later and make; they build their own virtual environment.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q
JOBS ?= 2

.PHONY: demo test lint typing unit crash cli stores conformance packaging terraform bench peers report clean

demo: $(VENV)/.base
	$(BIN)/durastore demo

test: lint typing unit crash cli stores conformance packaging terraform report

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The public types, as mypy and pyright see them.
typing: $(VENV)/.dev
	$(PYTEST) tests/typing

unit: $(VENV)/.dev
	$(PYTEST) -n $(JOBS) tests/unit

crash: $(VENV)/.dev
	$(PYTEST) -n $(JOBS) tests/crash

cli: $(VENV)/.dev
	$(PYTEST) -n $(JOBS) tests/cli

stores: $(VENV)/.dev
	$(PYTEST) -n $(JOBS) --dist loadfile tests/cloudsql tests/firestore tests/dynamodb tests/outages tests/emulators tests/bench

conformance: $(VENV)/.dev
	$(PYTEST) -n $(JOBS) tests/conformance

packaging: $(VENV)/.dev
	$(PYTEST) tests/packaging

terraform: $(VENV)/.dev
	$(PYTEST) tests/terraform

# What each store's suite said, clause by clause, as the last thing on the screen.
report: $(VENV)/.dev
	@cat reports/*.txt 2>/dev/null || true

bench: $(VENV)/.dev
	$(BIN)/durastore bench
	$(BIN)/durastore bench granularity
	$(BIN)/python -m tests.bench.scale

# durastore beside its peers, which live in a virtual environment of their own.
peers: $(VENV)-peers/.done
	$(VENV)-peers/bin/python -m tests.bench.peers

$(VENV)-peers/.done: pyproject.toml tests/bench/peers/requirements.txt
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet --disable-pip-version-check -r tests/bench/peers/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-peers reports build dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "durastore needs Python 3.10 or later; say which with: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.base
