# Every command makes the environment it needs; only Python 3.11 or newer, make, git and pip have to be there.
PYTHON ?= python3
BIN := .venv/bin
# Tests wait more than they compute, so there are more processes of them than cores.
PROCESSES := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2)))

.PHONY: help try test test-slow test-long test-outside torture lint types layers reference check bench lock format clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

try: .venv/run ## See sub-agents at work on the embedded store, and a worker killed in the middle
	@$(BIN)/python examples/tour.py
	@echo
	@$(BIN)/python examples/survive_a_kill.py

test: .venv/dev ## Run every test, on memory, SQLite and a real PostgreSQL
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(PROCESSES) --dist worksteal
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

test-slow: .venv/dev ## Run every test beside four busy loops, without measuring coverage
	$(BIN)/python -m scripts.busy $(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal

test-long: .venv/dev ## Try every simulated model as a parent of every other, and restarts in the middle
	$(BIN)/python -m pytest -o addopts="--strict-markers --strict-config -ra" -n $(PROCESSES) --dist worksteal \
		tests/agents/test_population.py tests/long

test-outside: .venv/dev ## Try remit with Claude Code and opencode from npm; not part of test
	$(BIN)/python -m scripts.outside

torture: .venv/dev ## Kill workers and servers under load for a while, on SQLite and on PostgreSQL
	$(BIN)/python -m tests.torture --database sqlite --tasks 5000 --kills 80 --stops 10 --minutes 5
	$(BIN)/python -m tests.torture --database postgres --tasks 5000 --kills 80 --stops 10 --restarts 10 --minutes 5
	REMIT_KILL_EVERY=1 $(BIN)/python -m pytest tests/crash/test_kill_sqlite.py

lint: .venv/dev ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev ## Check types, twice
	$(BIN)/mypy
	$(BIN)/basedpyright

layers: .venv/dev ## Check that the layers point down
	$(BIN)/lint-imports --no-cache

reference: .venv/dev ## Write docs/reference and docs/prompts.md from the code
	$(BIN)/python -m scripts.reference
	$(BIN)/python -m scripts.prompts

check: lint types layers ## Everything that is not a test
	$(BIN)/python -m scripts.reference --check
	$(BIN)/python -m scripts.prompts --check
	$(BIN)/python -m scripts.weight

bench: .venv/bench ## Measure against bare code, as ratios in one run
	$(BIN)/python -m bench

format: .venv/dev ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## Pin every dependency anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		pyproject.toml --extra postgres --group build -o requirements/run.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		pyproject.toml --extra postgres --group build --group dev -c requirements/run.txt -o requirements/dev.txt

	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		pyproject.toml --extra postgres --group build --group dev --group bench -c requirements/dev.txt -o requirements/bench.txt

clean: ## Remove environments and caches
	rm -rf .venv .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

.venv/run: requirements/run.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev: .venv/run requirements/dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

.venv/bench: .venv/dev requirements/bench.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	@touch $@
