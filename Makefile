# Each command creates the environment it needs. Required: Python 3.11 or newer, make, git and pip.
PYTHON ?= python3
BIN := .venv/bin
# Tests wait more than they compute, so they use two processes per core.
PROCESSES := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2)))

.PHONY: help try test test-fast test-slow test-long test-soak test-outside lint types layers reference check docs bench lock format clean

help: ## List all commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

try: .venv/run ## Watch sub-agents work on SQLite, and a task survive a killed worker
	@$(BIN)/python examples/tour.py
	@echo
	@$(BIN)/python examples/survive_a_kill.py

# `tests/selection.py` decides which tests are long and which are fast.
PYTEST := -m pytest -n $(PROCESSES) --dist worksteal
test: .venv/dev ## Run the tests that every change needs, on memory, SQLite and a real PostgreSQL server
	$(BIN)/python $(PYTEST) -m "not long"

test-fast: .venv/dev ## Run the unit tests and flows on memory, in less than a minute
	$(BIN)/python $(PYTEST) -m fast tests/unit tests/flows

test-slow: .venv/dev ## Run the tests of `make test` beside four busy loops
	$(BIN)/python -m scripts.busy $(BIN)/python $(PYTEST) -m "not long"

test-long: .venv/dev ## Run all other tests (torture, kill points, fuzz, docs) and measure coverage
	$(BIN)/python $(PYTEST) -m "long and not measured"
	$(BIN)/coverage erase
	$(BIN)/coverage run $(PYTEST) -m measured
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

test-soak: .venv/dev ## Kill workers and servers under load for minutes, and send 50,000 generated requests
	$(BIN)/python -m tests.torture --database sqlite --tasks 5000 --kills 80 --stops 10 --minutes 5
	$(BIN)/python -m tests.torture --database postgres --tasks 5000 --kills 80 --stops 10 --restarts 10 --minutes 5
	REMIT_FUZZ_EACH=900 $(BIN)/python $(PYTEST) tests/surfaces/test_fuzz.py

test-outside: .venv/dev ## Test with Claude Code and opencode from npm; not part of test
	$(BIN)/python -m scripts.outside

lint: .venv/dev ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev ## Check types with mypy and pyright
	$(BIN)/mypy
	$(BIN)/basedpyright

layers: .venv/dev ## Check the import contracts
	$(BIN)/lint-imports --no-cache

reference: .venv/dev ## Generate docs/reference, docs/prompts.md and the typed API
	$(BIN)/python -m scripts.stubs
	$(BIN)/python -m scripts.reference
	$(BIN)/python -m scripts.prompts

check: lint types layers docs ## Run every check that is not a test
	$(BIN)/python -m scripts.stubs --check
	$(BIN)/python -m scripts.reference --check
	$(BIN)/python -m scripts.prompts --check
	$(BIN)/python -m scripts.weight
	$(BIN)/python -m scripts.density

docs: .venv/docs ## Build the documentation site into build/site; fail on broken links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .venv/bench ## Compare speed and memory with plain code, as ratios
	$(BIN)/python -m bench

format: .venv/dev ## Format the code and fix lint errors
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## Update the pinned dependencies (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		pyproject.toml --extra postgres --group build -o requirements/run.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		pyproject.toml --extra postgres --group build --group dev -c requirements/run.txt -o requirements/dev.txt

	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		pyproject.toml --extra postgres --group build --group dev --group bench -c requirements/dev.txt -o requirements/bench.txt

	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		--group docs -c requirements/dev.txt -o requirements/docs.txt

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

.venv/docs: .venv/dev requirements/docs.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

.venv/bench: .venv/dev requirements/bench.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	@touch $@
