# Everything that people and CI do here. `make` alone lists the targets.
# ARGS goes to the command behind a target: make run ARGS='--listen-port 19876', make test ARGS='-k eviction'

.DEFAULT_GOAL := help
.NOTPARALLEL:

PY := .venv/bin/python
ARGS ?=
# more workers than that spend their time starting
PYTEST := $(PY) -m pytest --numprocesses auto --maxprocesses 4
TYPED := $(wildcard remoting namesrv broker_agent client benchmarks tests)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## make .venv with everything a developer needs (again only when locks/dev.txt changed)
	@sh locks/install.sh dev

.PHONY: setup-run
setup-run:
	@sh locks/install.sh run

.PHONY: run
run: setup-run ## serve on 0.0.0.0:9876 until Ctrl-C
	@exec .venv/bin/namesrv $(ARGS)

.PHONY: test
test: setup ## run the tests
	@$(PYTEST) $(ARGS)

.PHONY: check
check: setup ## what CI runs: format, lint, types, layers, tests with coverage
	$(PY) -m ruff format --check
	$(PY) -m ruff check
	$(PY) -m mypy $(TYPED)
	.venv/bin/lint-imports
	$(PYTEST) --cov --cov-report term-missing:skip-covered $(ARGS)

.PHONY: format
format: setup ## rewrite the sources as `make check` wants them
	$(PY) -m ruff check --fix-only
	$(PY) -m ruff format

.PHONY: bench
bench: setup ## measure speed and size, as ratios within one run
	@$(PY) -m benchmarks $(ARGS)

.PHONY: fuzz
fuzz: setup ## fuzz the frame decoder for long (NAMESRV_FUZZ_EXAMPLES, 2,000,000 if not given)
	@NAMESRV_FUZZ_EXAMPLES=$${NAMESRV_FUZZ_EXAMPLES:-2000000} $(PYTEST) -o faulthandler_timeout=0 tests/fuzz $(ARGS)

.PHONY: lock
lock: ## write locks/ anew from pyproject.toml (ARGS=--upgrade for the newest versions)
	@sh locks/compile.sh $(ARGS)

.PHONY: clean
clean: ## remove .venv and everything generated
	rm -rf .venv .venv.lock build dist .coverage .coverage.* htmlcov \
		.pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(TYPED) -name __pycache__ -type d -prune -exec rm -rf {} +
