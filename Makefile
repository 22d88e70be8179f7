# Each target does all of its own set-up on a fresh Debian 12, and is quick when that is done already.
#   make demo    a script of about a minute on a private real Slurm (without root or apt: on the fake one)
#   make check   style, types, and the tests that need neither root nor Slurm: within a minute
#   make test    all tests, those on a real Slurm included, but not those in containers
#   make test-cluster  tests in containers: the cluster of docker-compose.yml, units, packages (docs/cluster.md)
#   make clients  submitit, snakemake, dask-jobqueue, and parsl from PyPI, preempted beside omfsd (docs/clients.md)
#   make soak    all tests with full matrices and 100,000 random examples: before an issue is resolved
#   make bench   reading what squeue prints, planning, and estimates of starts, to build/bench/plan.json, and predictions of run times, to predictors.json
#   make bench-sim  simulation speed, to build/bench/sim.json (traces: OMFS_TRACES)
#   make bench-methods  the preemption methods beside the bare tools, to build/bench/methods.json (DMTCP: OMFS_DMTCP)
#   make shapes  what becomes of some ninety shapes of programs by each method, to build/bench/shapes.json (DMTCP: OMFS_DMTCP)
#   make bench-latency  an urgent start beside Slurm's own preemption, to build/bench/latency.json (BACKLOG=0,5000)
#   make bench-realtime  real-time jobs beside Slurm's own preempt/qos, to build/bench/realtime.json, and what they add to a plan, to realtime_plan.json
#   make bench-gentle  what slurmctld has to do for omfsd in ten minutes, to build/bench/gentle.json
#   make bench-scale  omfsd beside a real Slurm of 200 nodes and a fake one of 10,000, an hour each, to build/bench/scale.json
#   make bench-report  omfs report on a million records of each format, to build/bench/report.json
#   make bench-commands  processor time of omfs's commands and of omfsd's start, to build/bench/commands.json
#   make nodes   build/omfs-run and build/omfs-node: one file each, for nodes with Python 3.6 or later
#   make packages  Debian packages for the daemon and for nodes, to build/packages
#   make man     the manual pages, to build/man
#   make lint    style, types, and which module may import which
#   make venv    the virtual environment .venv

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
# A private Slurm runs jobs as the users who submit them, so it needs root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=CI,OMFS_TRACES,OMFS_PYSLURM_PYTHON)
# Tests of one cluster run on one worker. Tests on Slurm mostly wait: more workers than cores.
PYTEST := -m pytest -n 4 --dist loadgroup
# Its three groups side by side: the cluster, hosts with systemd, and packages.
IN_CONTAINERS := -m pytest -n 3 --dist loadgroup -m containers tests/containers

CLIENTS := build/clients

.PHONY: help check clients demo test test-cluster soak bench bench-sim bench-methods bench-latency bench-gentle \
	bench-commands bench-report bench-scale lint man nodes packages shapes venv bench-realtime

help:
	@sed -n 's/^#   //p' Makefile

venv: $(READY)

$(READY): pyproject.toml deploy/venv.sh
	@deploy/venv.sh $(VENV)
	@touch $@

demo: $(READY)
	@if deploy/setup.sh; then exec $(AS_ROOT) $(VENV)/bin/omfs demo; \
	elif [ $$? = 3 ]; then exec $(VENV)/bin/omfs demo --fake; \
	else exit 1; fi

test: $(READY)
	@deploy/setup.sh tests
	@$(AS_ROOT) $(PYTHON) $(PYTEST) -m "not containers and not clients"

$(CLIENTS)/.ready: tests/clients/requirements.txt deploy/clients.sh $(READY)
	@deploy/clients.sh $(CLIENTS) $(PYTHON)
	@touch $@

# One after the other: they wait for many programs to start.
clients: $(READY) $(CLIENTS)/.ready
	@deploy/setup.sh tests
	@$(AS_ROOT) $(PYTHON) -m pytest -n 0 --soak --timeout 1800 tests/clients

test-cluster: $(READY)
	@deploy/setup.sh tests
	@$(AS_ROOT) deploy/engine.sh run $(PYTHON) $(IN_CONTAINERS); code=$$?; \
	$(AS_ROOT) deploy/engine.sh down; exit $$code

soak: $(READY) $(CLIENTS)/.ready
	@deploy/setup.sh tests
	@$(AS_ROOT) $(PYTHON) $(PYTEST) --soak --timeout 7200 -m "not containers"
	@$(AS_ROOT) deploy/engine.sh run $(PYTHON) $(IN_CONTAINERS) --soak --timeout 7200

check: lint
	@$(PYTHON) $(PYTEST) -m "not slurm and not system and not kernels and not containers" tests/unit tests/property

bench: $(READY)
	@$(PYTHON) -m benchmarks.plan
	@$(PYTHON) -m benchmarks.predictors

bench-sim: $(READY)
	@$(PYTHON) -m benchmarks.simulate

bench-methods: $(READY)
	@deploy/setup.sh tests
	@$(AS_ROOT) env OMFS_DMTCP="$$OMFS_DMTCP" $(PYTHON) -m benchmarks.methods

shapes: $(READY)
	@deploy/setup.sh tests
	@$(AS_ROOT) env OMFS_DMTCP="$$OMFS_DMTCP" $(PYTHON) -m benchmarks.shapes

bench-latency: $(READY)
	@deploy/setup.sh tests
	@$(AS_ROOT) $(PYTHON) -m benchmarks.latency $(if $(BACKLOG),--backlog $(BACKLOG))

bench-realtime: $(READY)
	@deploy/setup.sh tests
	@$(PYTHON) -m benchmarks.realtime_plan
	@$(AS_ROOT) $(PYTHON) -m benchmarks.realtime_starts

bench-gentle: $(READY)
	@deploy/setup.sh tests
	@$(AS_ROOT) $(PYTHON) -m benchmarks.gentle

bench-scale: $(READY)
	@deploy/setup.sh tests
	@$(AS_ROOT) $(PYTHON) -m benchmarks.scale

bench-report: $(READY)
	@$(PYTHON) -m benchmarks.report

bench-commands: $(READY)
	@deploy/setup.sh tests
	@$(AS_ROOT) $(PYTHON) -m benchmarks.commands

nodes:
	@python3 deploy/zipapps.py

packages:
	@deploy/debian/build.sh

man: $(READY)
	@$(PYTHON) -m deploy.manual build/man

lint: $(READY)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(PYTHON) -m pytest -q -n 0 tests/unit/test_code_layout.py
	@$(VENV)/bin/vermin --quiet --no-tips --target=3.6- --violations omfs_daemon/omfs_run omfs_daemon/omfs_node omfs_daemon/protocol
