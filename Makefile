# One command per wish, the same here and in CI. `make` alone lists them.

PIP_INPUTS := $(wildcard requirements/*.txt) pyproject.toml scripts/setup
BIN := .venv/bin
# What is formatted, linted and typed: of these, those that exist.
CODE := $(wildcard src tests benchmarks demo)
PYTEST_ARGS ?=

# What is compiled is kept, whatever the caller's shell says: tests start a hundred processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo dev test test-long check format bench soak year requirements clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.dev-stamp ## put everything for working on Tocsin into .venv (the other commands see to it themselves)
	@echo "Ready: $(BIN)/tocsin, and make test."

demo: .venv/.run-stamp ## run the main job for real in under two minutes: callbacks, a worker, retries, a redrive
	@$(BIN)/python -m demo.run

dev: .venv/.run-stamp ## run the embedded server on this machine until Ctrl-C
	@$(BIN)/tocsin dev $(DEV_ARGS)

test: .venv/.dev-stamp ## run the tests; PYTEST_ARGS='-n 0 -k retry' passes more to pytest
	@$(BIN)/pytest -n 3 --dist worksteal $(PYTEST_ARGS)

test-long: export HYPOTHESIS_PROFILE = long
test-long: test ## run the tests with all that they sample otherwise: every point of a crash, more random lives, a longer year

check: .venv/.dev-stamp ## look for faults without running anything: format, lint, types, imports
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo

format: .venv/.dev-stamp ## rewrite the code in the project's format and mend what ruff can mend
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: .venv/.dev-stamp ## measure this machine; BENCH_ARGS passes more to the benchmarks
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

soak: .venv/.dev-stamp ## 2,000 jobs a second for half an hour on PostgreSQL and Valkey, across midnight (UTC), for which it waits
	@$(BIN)/python -m benchmarks fleet-soak

year: .venv/.dev-stamp ## live through a year of 1,000 schedules, a million occurrences, with crashes; YEAR_ARGS='--seed 7' passes more
	@$(BIN)/python -m tests.year $(YEAR_ARGS)

requirements: .venv/.dev-stamp ## pin anew what pyproject.toml asks for; UPGRADE=1 takes the newest versions
	@scripts/pin $(if $(UPGRADE),--upgrade)

clean: ## remove the environment, caches and build results
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests $(wildcard benchmarks demo) -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment for tests also serves to run, so the run stamp is fresh after either set-up.
.venv/.run-stamp: $(PIP_INPUTS)
	@scripts/setup run

.venv/.dev-stamp: $(PIP_INPUTS)
	@scripts/setup dev
