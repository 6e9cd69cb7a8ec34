# Everything that people and CI do here. `make` alone lists the targets.
# ARGS goes to the command behind a target: make run ARGS='--listen-port 19876', make test ARGS='-k eviction'

.DEFAULT_GOAL := help
.NOTPARALLEL:
# With this variable set, each of the hundreds of processes that tests start would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
ARGS ?=
# starting more than four workers takes longer than they save
PYTEST := $(PY) -m pytest --numprocesses auto --maxprocesses 4 --dist loadgroup --durations 10
TYPED := $(wildcard runtime remoting namesrv broker_agent client testing console spark_jobs benchmarks demo docker tools tests)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## make .venv with everything a developer needs (again only when locks/dev.txt changed)
	@sh locks/install.sh dev

.PHONY: setup-run
setup-run:
	@sh locks/install.sh run

.PHONY: run
run: setup-run ## serve on 0.0.0.0:9876 until Ctrl-C, with its data in .state
	@exec env XDG_STATE_HOME="$(CURDIR)/.state" .venv/bin/namesrv $(ARGS)

.PHONY: console
console: setup-run ## serve the web console on 127.0.0.1:9878 until Ctrl-C: make console ARGS='--server a:9876 --server b:9876'
	@exec .venv/bin/namesrv-console $(ARGS)

.PHONY: screenshots
screenshots: setup ## take the pictures of the console in docs/images anew (needs a browser)
	@sh tests/spark_jobs/setup_browser.sh
	@NAMESRV_PICTURES="$(CURDIR)/docs/images" $(PY) -m pytest -q tests/console/browser/test_pictures.py \
		tests/console/browser/test_acting.py $(ARGS)

.PHONY: test
test: setup ## run the quick tests: every capability once, in three minutes
	@$(PYTEST) -m 'not slow' $(ARGS)

# two workers leave half of two cores idle: many of these tests wait for a browser, a heartbeat or a drain
.PHONY: test-rest
test-rest: setup ## run the tests that `make test` leaves out, except those with real RocketMQ
	@$(PYTEST) --numprocesses 3 -m 'slow or hypothesis' --all-loops --hypothesis-profile=full $(ARGS)

.PHONY: test-all
test-all: test test-rest interop model ## run all tests there are (needs Java, Maven, Go, a browser; docs/testing.md says what for)

.PHONY: lint
lint: setup ## check format, lint, types and layers
	$(PY) -m ruff format --check
	$(PY) -m ruff check
	$(PY) -m mypy $(TYPED)
	.venv/bin/lint-imports

.PHONY: check
check: lint ## lint, and run the quick tests with coverage
	@$(PYTEST) -m 'not slow' --cov --cov-report term-missing:skip-covered $(ARGS)

.PHONY: format
format: setup ## rewrite the sources as `make check` wants them
	$(PY) -m ruff check --fix-only
	$(PY) -m ruff format

.PHONY: durability
durability: setup ## kill a hundred servers on a disk that fails now and then: every confirmed change must survive (needs cc)
	@NAMESRV_KILLS=100 $(PY) -m pytest -n0 -q -s -o faulthandler_timeout=0 tests/journeys/test_disk.py -k confirmed $(ARGS)

.PHONY: setup-interop
setup-interop: setup
	@sh tests/interop/setup.sh

# two workers leave half of two cores idle: most tests wait for heartbeats and polls
.PHONY: interop
interop: setup-interop ## run real RocketMQ brokers, clients and tools against this NameServer (needs Java, Maven, Go)
	@$(PY) -m pytest --numprocesses 3 --dist loadfile tests/interop --deselect tests/interop/test_model.py $(ARGS)

.PHONY: model
model: setup-interop ## check the TLA+ model of registering, leaving and watching through every order of events (needs Java, Maven)
	@$(PY) -m pytest -n0 -o faulthandler_timeout=0 tests/interop/test_model.py $(ARGS)

.PHONY: setup-spark
setup-spark: setup ## install the Java that the staleness report needs on Spark, from the system's packages if permitted
	@sh spark_jobs/setup_spark.sh

# the oldest and the newest supported version; the other tests run with the locked one
PYSPARKS ?= 3.5.9 4.3.0

.PHONY: spark-versions
spark-versions: setup-spark ## run the tests of both engines with the oldest and the newest PySpark, and through Spark Connect (downloads each once)
	@sh tests/spark_jobs/versions.sh $(PY) $(PYSPARKS)

.PHONY: dist
dist: setup ## write dist/: the sources, and a wheel of each part with its bill of materials
	@sh locks/add.sh dist
	@rm -rf dist
	@$(PY) -m tools.dist dist
	@$(PY) -m tools.sbom dist
	@cd dist && sha256sum -- * >SHA256SUMS

.PHONY: release-check
release-check: setup ## build and check a release without publishing it; SIGNING_KEY=KEY signs it (docs/releasing.md)
	@$(PY) -m tools.release_check

.PHONY: spark-zip
spark-zip: setup ## write dist/namesrv_spark_jobs.zip, for spark-submit --py-files
	@$(PY) -m namesrv_spark_jobs.command.submit dist/namesrv_spark_jobs.zip

.PHONY: spark-data
N ?= 1_000_000
OUT ?= spark-data
SEED ?= 1
spark-data: setup ## write heartbeat logs with known truth: make spark-data N=20_000_000 OUT=DIR SEED=1
	@$(PY) -m tools.heartbeat_logs --lines $(N) --out $(OUT) --seed $(SEED) $(ARGS)

.PHONY: demo
demo: setup ## run a cluster on this machine in which brokers die, hang and leave; show when servers and clients notice
	@$(PY) -m demo $(ARGS)

.PHONY: docker-check
docker-check: setup ## check docker/: lint, build, run as four hosts, systemd units (needs root on Debian 12, and Go for compose)
	@sh docker/check/all.sh

.PHONY: pin-bases
pin-bases: ## write the present digests of the base images into docker/ (needs docker)
	@sh docker/pin.sh

.PHONY: deb
deb: setup ## build packages for Debian 12 in dist/: server, agent, namesrvctl, console and report (needs dpkg-deb)
	@$(PY) -m tools.debian_package $(ARGS)

.PHONY: deb-check
deb-check: setup ## install, upgrade and purge the Debian packages on a Debian 12 that boots in a container (needs root)
	@sh deploy/debian/check.sh $(ARGS)

.PHONY: chart-check
chart-check: setup ## check the Helm chart and the manifests in deploy/ (needs Go; ARGS=--write writes the manifests anew)
	@$(PY) -m tools.chart_check $(ARGS)

.PHONY: bench
bench: setup ## measure speed and size, as ratios within one run
	@$(PY) -m benchmarks $(ARGS)

.PHONY: bench-peers
bench-peers: setup ## measure this NameServer beside other registries, as ratios within one run (needs Java, Maven, Go and Rust; without one, its registries are left out)
	@$(PY) -m benchmarks peers $(ARGS)

.PHONY: abuse
abuse: setup ## attack this NameServer as hostile peers would, and measure the effect on other peers
	@$(PY) -m benchmarks abuse $(ARGS)

.PHONY: torture
torture: setup ## inflict the same faults on this NameServer and on others (root, network namespaces; ARGS='--peer apache --only kill')
	@$(PY) -m benchmarks torture $(ARGS)

.PHONY: scoreboard
scoreboard: setup ## measure each promise of the project, and write docs/scoreboard.md (ARGS='--only D1 D2')
	@$(PY) -m benchmarks scoreboard $(ARGS)

.PHONY: soak
MINUTES ?= 60
soak: setup ## run 1,000 agents and 1,000 clients that come and go for MINUTES (60), to find leaks and wrong routes
	@$(PY) -m benchmarks soak --minutes $(MINUTES) $(ARGS)

.PHONY: fuzz
fuzz: setup ## fuzz the frame decoder for long (NAMESRV_FUZZ_EXAMPLES, 2,000,000 if not given)
	@NAMESRV_FUZZ_EXAMPLES=$${NAMESRV_FUZZ_EXAMPLES:-2000000} $(PYTEST) -o faulthandler_timeout=0 tests/fuzz $(ARGS)

.PHONY: fuzz-coverage
SECONDS ?= 60
fuzz-coverage: setup ## fuzz each reader for SECONDS (60), guided by coverage (Linux; installs atheris once)
	@sh locks/add.sh fuzz
	@$(PY) -m tests.fuzz --seconds $(SECONDS) $(ARGS)

.PHONY: simulate
GIVEN = $(filter command environment,$(firstword $(origin $(1))))
simulate: setup ## run the whole system in simulation, N (100,000) seeds, or one with its time line: make simulate SEED=7
	@$(PY) -m tests.simulation $(if $(call GIVEN,SEED),--seed $(SEED)) $(if $(call GIVEN,N),--count $(subst _,,$(N))) $(if $(call GIVEN,PLAN),--plan $(PLAN)) $(ARGS)

.PHONY: simulate-nightly
PLAN ?= any
simulate-nightly: setup ## continue the simulation after the last seed, for SECONDS (60); PLAN=removals for races of removals
	@$(PY) -m tests.simulation --plan $(PLAN) --journal build/simulation-$(PLAN).jsonl --seconds $(SECONDS) $(ARGS)

.PHONY: mutation
mutation: setup ## plant MUTANTS (100) bugs in each of tables, wire, link and keeper, and count those that the tests find
	@sh tools/mutation.sh $${MUTANTS:-100} '$(ONLY)' $(PACKAGES)

.PHONY: lock
lock: ## write locks/ anew from pyproject.toml (ARGS=--upgrade for the newest versions)
	@sh locks/compile.sh $(ARGS)

.PHONY: docs
docs: setup ## build the documentation as a site into build/site (ARGS=serve: serve it on 127.0.0.1:8000, always current)
	@sh tools/site.sh $(ARGS)

.PHONY: clean
clean: ## remove .venv, the data of `make run` and everything generated
	rm -rf .venv .venv.lock .state .interop spark-data build dist .coverage .coverage.* htmlcov \
		.pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(TYPED) -name __pycache__ -type d -prune -exec rm -rf {} +
