# The loop: make setup · make test-fast · make test · make test-integrations · make check · make fix · make bench · make bench-goals · make demo
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Imports are two to three times slower without byte code.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup test test-fast test-integrations check fix bench bench-goals demo docs clean

setup: $(VENV)/.installed

# An editable installation compiles the kernel next to its source.
KERNEL := $(wildcard src/dpolicy/balances/kernel/*.px[iy])

$(VENV)/.installed: pyproject.toml hatch_build.py $(KERNEL)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

test: setup  ## every test, on all cores, with the coverage gate of pyproject.toml
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --cov --cov-report=

test-fast: setup  ## the tests to run while editing: under a minute of CPU time
	$(BIN)/python -m pytest --numprocesses auto -m "not slow"

# The pins of gated libraries conflict, so each group has its own environment.
GATED := $(patsubst tests/gated/%/requirements.txt,%,$(wildcard tests/gated/*/requirements.txt))

test-integrations: $(GATED:%=gated-%)  ## tests of all gated libraries

$(GATED:%=gated-%): gated-%: .venvs/%/.installed
	.venvs/$*/bin/python -m pytest tests/gated/$*

.venvs/%/.installed: tests/gated/%/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venvs/$*
	.venvs/$*/bin/python -m pip install --quiet --requirement $<
	touch $@

check: setup  ## format, lint, types, layers, docs fresh
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_tidy.py
	$(BIN)/python docs/generate.py --check

fix: setup  ## format, apply lint fixes, regenerate pages
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python docs/generate.py

docs: setup
	$(BIN)/python docs/generate.py

bench: setup  ## tables, no asserts
	$(BIN)/python benchmarks/compile.py
	PYTHONPATH=. $(BIN)/python benchmarks/capacity.py
	$(BIN)/python benchmarks/cost.py
	$(BIN)/python benchmarks/reading.py
	PYTHONPATH=. $(BIN)/python benchmarks/decide.py
	PYTHONPATH=. $(BIN)/python benchmarks/headroom.py
	$(BIN)/python benchmarks/kernel.py
	$(BIN)/python benchmarks/regions.py
	$(BIN)/python benchmarks/strategies.py
	$(BIN)/python benchmarks/allocate.py --quick
	$(BIN)/python benchmarks/hindsight.py --scenario context --total 10
	PYTHONPATH=. $(BIN)/python benchmarks/serve.py 5

GOALS :=
bench-goals: setup  ## the goals of docs/performance.md, as ratios of one run
	PYTHONPATH=. $(BIN)/python benchmarks/goals.py $(GOALS)

DEMO := build/demo
demo: setup  ## rules and decisions of an example, all cases; then the dashboard with sample data
	$(BIN)/dpolicy rules examples/web-analytics
	rm -rf $(DEMO) && mkdir -p $(DEMO)
	$(BIN)/dpolicy apply examples/web-analytics --ledger $(DEMO)/ledger.db
	$(BIN)/dpolicy submit examples/web-analytics/releases/*.yaml --ledger $(DEMO)/ledger.db
	$(BIN)/dpolicy budgets --ledger $(DEMO)/ledger.db --rule daily --at country=AT
	$(BIN)/dpolicy verify --ledger $(DEMO)/ledger.db
	$(BIN)/dpolicy test examples
	if [ -t 1 ] && [ -z "$$CI" ]; then $(BIN)/dpolicy demo; else $(BIN)/dpolicy demo --check; fi

clean:
	rm -rf $(VENV) .venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis
