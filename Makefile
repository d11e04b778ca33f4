# Two commands do everything: `make demo` and `make test`.  Each sets up what it needs first.

# scripts/setup.sh makes it; a .venv is yours, and no target touches it.
PYTHON := .make-venv/bin/python
CHECK_JSON = $(PYTHON) -m check_jsonschema --quiet --builtin-schema
# Tests wait more than they compute, so four processes share two cores.  If one crashes, the run ends: pytest-xdist
# 3.8 would replace it, and with loadfile wait for ever.
PYTEST := $(PYTHON) -m pytest -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# Days since 1970.
DAY ?= $(shell expr `date +%s` / 86400)
# Not the suites that need more than Python and Java, or many minutes: they have targets of their own.
SUITE := not soak and not pacemaker and not brokers and not spark

# What your shell has for other environments must not lead Python or pip out of this one.
unexport PYTHONHOME PYTHONPATH PIP_PREFIX PIP_PYTHON PIP_ROOT PIP_TARGET
export PIP_USER := 0
# Images for containers set it; each process would then rewrite all tests' assertions anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup release lint-workflows demo test test-slow test-slow-short test-all mutants test-interop test-clients test-clients-short test-pacemaker test-pacemaker-short test-brokers test-brokers-short test-spark monitors calls wheels test-wheels soak soak-connections soak-hosts soak-sites soak-stream soak-tokens storm grid grid-short grid-large simulate-million fuzz fuzz-short hostile hostile-short model docs check format bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile
	@echo '  make test PYTEST_ARGS="-k discovery -x" hands the arguments on to pytest'

setup:  ## system packages, virtual environment, install; nothing when all is there
	@scripts/setup.sh

demo:  ## a broker pair, a producer and a consumer; the primary is killed twice
	@scripts/setup.sh demo
	@$(PYTHON) examples/failover_demo.py $(DEMO_ARGS)

test: setup  ## the tests, without the slow ones: nine minutes on two idle cores
	@$(PYTEST) $(PYTEST_ARGS)

test-slow: setup  ## the slow tests: faults, processes by the dozen, Spark twice, exhaustive models
	@$(PYTEST) -m "slow and $(SUITE)" $(PYTEST_ARGS)

test-slow-short: setup  ## a quarter of their files, a different quarter each day; DAY=n runs that of a day
	@echo "test-slow-short: DAY=$(DAY)"
	@$(PYTEST) -m "slow and $(SUITE)" --quarter $(DAY) $(PYTEST_ARGS)

test-all: setup  ## both together
	@$(PYTEST) -m "$(SUITE)" $(PYTEST_ARGS)

mutants: setup  ## MUTANTS=30 small changes of each folder's code: which tests notice; SEED=n makes others
	@$(PYTHON) -c 'import cosmic_ray' 2>/dev/null || $(PYTHON) -m pip install --quiet -c constraints.txt 'cosmic-ray>=8.7,<9'
	@$(PYTHON) -m tests.mutants --count $(or $(MUTANTS),30) --seed $(or $(SEED),1) $(MUTANTS_ARGS)

test-interop: setup  ## install RabbitMQ, rhea and other clients, and test with them
	@scripts/setup_interop.sh
	@$(PYTHON) -m pytest -m "$(SUITE)" tests/interop $(PYTEST_ARGS)

test-clients: setup  ## six clients of five languages through ten failovers; CLIENTS_ARGS="--only rhea"
	@$(PYTHON) -m tests.interop.clients --kills 10 $(CLIENTS_ARGS)

test-clients-short: setup  ## the same for Qpid JMS and go-amqp, two failovers: a minute
	@$(PYTHON) -m tests.interop.clients --kills 2 --only qpid-jms go-amqp

test-pacemaker: setup  ## install Pacemaker and Corosync, and test with clusters of two and three nodes: 20 minutes, root
	@scripts/setup_pacemaker.sh
	@$(PYTHON) -m pytest -m pacemaker tests/pacemaker $(PYTEST_ARGS)

test-pacemaker-short: setup  ## the same for one pair whose primary dies, and then hangs: a minute
	@scripts/setup_pacemaker.sh
	@$(PYTHON) -m pytest -m "pacemaker and not soak" tests/pacemaker $(PYTEST_ARGS)

test-brokers: setup  ## six brokers and our pair under faults; BROKERS_ARGS="--whole --resume", 90 minutes
	@scripts/setup_brokers.sh
	@$(PYTHON) -m pytest -m brokers tests/brokers $(PYTEST_ARGS)
	@$(PYTHON) -m tests.brokers.matrix $(BROKERS_ARGS)

test-brokers-short: setup  ## two kills of Artemis, RabbitMQ 4 and ActiveMQ Classic, and a move of Broker-J: four minutes
	@scripts/setup_brokers.sh short
	@$(PYTHON) -m tests.brokers.matrix --short $(BROKERS_ARGS)

test-spark: setup  ## the batch job on a Spark cluster of two workers, and on a Spark Connect server: two minutes
	@$(PYTHON) -m pytest -m spark tests/analysis/test_elsewhere.py $(PYTEST_ARGS)

monitors: setup  ## MONITORS=1000 monitors of the agent beside full load: how many of them failed, and the slowest
	@$(PYTHON) -m tests.broker_stub.resource_agents.monitors --count $(or $(MONITORS),1000)

calls: setup  ## 10,000 calls over each API, cancelled and timed out at random; SEED=n makes others
	@CALLS_SEED=$(or $(SEED),14) $(PYTHON) -m pytest -m soak -s tests/failover/test_ten_thousand_calls.py

soak: setup  ## random faults under load until FAILOVERS=100 have happened; SEED=n replays
	@$(PYTHON) -m tests.faults.soak --failovers $(or $(FAILOVERS),100) $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

soak-connections: setup  ## 5,000 connections of one process, and a thousand through each API that leave nothing behind
	@$(PYTHON) -m pytest -m soak tests/failover/test_many_connections.py tests/api/test_leaks.py

soak-hosts: setup  ## FAULTS=200 between hosts that are namespaces (root, iproute2, zookeeper); SEED=n replays
	@$(PYTHON) -m tests.hosts.soak --faults $(or $(FAULTS),200) $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

soak-sites: setup  ## two clusters and a link that is cut, while both fail over; SITES_ARGS="--messages 10000 --seed 7"
	@$(PYTHON) -m tests.broker_stub.sites.soak $(SITES_ARGS)

soak-tokens: setup  ## 100 connections with tokens of 20 s, renewed beside FAILOVERS=20 kills: six minutes
	@TOKEN_FAILOVERS=$(or $(FAILOVERS),20) $(PYTHON) -m pytest -m soak -s tests/failover/test_token_renewals.py

soak-stream: setup  ## the analysis as a stream, killed STREAM_KILLS=10 times at random points
	@STREAM_KILLS=$(or $(STREAM_KILLS),10) STREAM_SEED=$(or $(SEED),7) \
	    $(PYTHON) -m pytest -m soak tests/analysis/test_stream.py

storm: setup  ## a real reconnect storm: a local pair, its primary killed; STORM_ARGS="--connections 3000 --client proton"
	@$(PYTHON) -m benchmarks.storm $(STORM_ARGS)

grid: setup  ## storms in virtual time, all presets beside our default, judged and checked; keeps results in build/; minutes
	@$(PYTHON) -m benchmarks.grid judge short --check --cache build/grid.jsonl --json build/grid.json \
	    --plot build/grid.png $(GRID_ARGS)

grid-short:  ## one of its three kinds of storms, another one each day
	@$(MAKE) --no-print-directory grid GRID_ARGS="--sweep 'kind=$(subst -, ,$(word $(shell expr $(DAY) % 3 + 1),reset silent dead-host))'"

grid-large: setup  ## the same with outages of 30 and 300 s for up to 2,000 clients, and with 20,000 clients; an hour
	@$(PYTHON) -m benchmarks.grid judge whole --cache build/grid.jsonl --json build/grid-whole.json \
	    --plot build/grid-whole.png $(GRID_ARGS)
	@$(PYTHON) -m benchmarks.grid judge large --cache build/grid.jsonl --json build/grid-large.json \
	    --plot build/grid-large.png $(GRID_ARGS)

simulate-million: setup  ## a million clients in virtual time: hints, parked, warm, no hints; 4 GB of memory
	@$(PYTHON) -m pytest -m soak --timeout=7200 -s tests/simulation/test_million.py

fuzz: setup  ## fuzz each target with Atheris; hours; FUZZ_ARGS="server --runs 1000 --seed 7"
	@$(PYTHON) -c 'import atheris' 2>/dev/null || $(PYTHON) -m pip install --quiet -c constraints.txt 'atheris>=3,<4'
	@$(PYTHON) -m tests.fuzz $(FUZZ_ARGS)

fuzz-short:  ## the same for a minute or two: each planted bug once, and a part of the inputs
	@$(MAKE) --no-print-directory fuzz FUZZ_ARGS="--part 0.001 --planted 1 --jobs 2"

hostile: setup  ## a hostile broker against every client, then hostile clients against the pair, MINUTES=10 each; SEED=n replays
	@$(PYTHON) -m tests.hostile broker --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) --jobs 2 $(HOSTILE_ARGS)
	@$(PYTHON) -m tests.hostile client --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

hostile-short:  ## the same for half a minute each
	@$(MAKE) --no-print-directory hostile MINUTES=0.5

model: setup  ## every state of three members and four generations: some minutes, 1.2 GB of memory
	@$(PYTHON) -m tests.broker_stub.election.model --members 3 --generations 4 $(MODEL_ARGS)
	@$(PYTHON) -m tests.broker_stub.election.model --members 3 --generations 2 --consumes --most-states 1000000
	@$(PYTHON) -m tests.broker_stub.election.model --members 2 --generations 5 --consumes
	@$(PYTHON) -m tests.broker_stub.election.model --members 2 --messages 2 --generations 2 --consumes
	@$(PYTHON) -m tests.broker_stub.election.model --members 3 --messages 0 --generations 3 --client proven \
	    --watch proven-clients --most-states 1000000
	@$(PYTHON) -m tests.broker_stub.election.model --members 2 --generations 4 --client anonymous --watch clients

docs:  ## the documentation site, into build/site; links, spelling and sentences are checked
	@scripts/setup.sh docs
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs --quiet build
	@$(PYTHON) -m codespell_lib *.md changes docs examples haclient broker_stub benchmarks/grid benchmarks/storm
	@$(PYTHON) scripts/check_prose.py
	@echo 'build/site/index.html; with search: $(PYTHON) -m http.server --bind 127.0.0.1 --directory build/site'

check: setup  ## ruff, ruff format, mypy --strict, the layers, unused code, words, docstrings, addresses, notes of changes, workflows
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy --strict haclient broker_stub benchmarks/grid benchmarks/storm scripts/generate
	@.make-venv/bin/lint-imports --no-cache --no-logo
	@$(PYTHON) scripts/check_tree.py
	@$(PYTHON) scripts/check_unused.py
	@$(PYTHON) scripts/check_words.py
	@$(PYTHON) scripts/check_docstrings.py
	@$(PYTHON) scripts/check_urls.py
	@$(PYTHON) scripts/check_changes.py
	@$(CHECK_JSON) vendor.github-workflows .github/workflows/*.yml
	@$(CHECK_JSON) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(CHECK_JSON) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	@$(CHECK_JSON) vendor.dependabot .github/dependabot.yml

# Beside `make check`, which needs nothing but the virtual environment: actionlint is written in Go.
lint-workflows:  ## actionlint over the workflows; it or Go has to be installed
	@if command -v actionlint >/dev/null; then actionlint; \
	    else go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12; fi

wheels: setup  ## dist/: the wheels of haclient and of a proton that needs libc alone, checksums, SBOM; two minutes
	@scripts/build_wheels.sh

test-wheels: wheels  ## install them into three bare Debians (root, debootstrap), and run the demo there: five minutes
	@scripts/setup_wheels.sh
	@$(PYTHON) -m tests.wheels $(WHEELS_ARGS)

release: setup  ## version, changelog, tag, wheel, sdist, checksums: VERSION=1.2.3; DRY_RUN=1 keeps nothing
	@$(PYTHON) scripts/release.py "$(VERSION)" $(if $(DRY_RUN),--dry-run)

format: setup  ## format, and fix what ruff can fix
	@$(PYTHON) -m ruff format .
	@$(PYTHON) -m ruff check --fix .

bench: setup  ## every benchmark in turn; each prints its own ratio against its peer
	@for benchmark in $(sort $(wildcard benchmarks/bench_*.py)); do \
	    echo "== $$benchmark"; $(PYTHON) "$$benchmark" $(BENCH_ARGS) || exit; \
	done

clean:  ## remove what make made: caches, build products, .make-venv
	rm -rf .make-venv .interop .clients .brokers .wheels benchmarks/node/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find haclient broker_stub tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +
