# Dodona's commands. `make demo` and `make test` are all that a new machine needs:
# both first prepare .venv, from requirements.lock, when it is missing or out of date.
# Only Spark needs Java: without it the demonstration and the tests leave Spark out, and say so.
# ARGS adds options to the last program that a command runs: make test ARGS='-k locks'.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for it in python3.11 python3; do \
  $$it -c '$(IS_NEW_ENOUGH)' 2>/dev/null && echo $$it && break; done)
BIN := .venv/bin
INSTALLED := .venv/.installed
PROJECTS := client/pyproject.toml pyproject.toml loadtest/pyproject.toml
SOAK_SEEDS := 1000:6000
# Where nothing keeps compiled code, each process compiles all that it imports: twice the time of a start.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-input --quiet
UV := UV_LINK_MODE=copy $(BIN)/uv pip install --python $(BIN)/python --quiet

.PHONY: help install demo check test test-all steady lint format docs chart soak mutants load bench bench-spark \
  picture lock clean check-python check-venv

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 13

install: $(INSTALLED) ## prepare .venv, which the others do by themselves

demo: $(INSTALLED) ## show what a cluster on this machine can do (ARGS=--embedded: without servers)
	@$(BIN)/dodona demo $(ARGS)

SUITE := $(BIN)/python -m suite --beside '$(MAKE) --no-print-directory lint' --level

check: $(INSTALLED) ## while you write, 3 minutes: lint, and the tests that start no servers and compute little
	@$(SUITE) check $(ARGS)

test: $(INSTALLED) ## for every change, 8 to 11 minutes: lint, and tests of every kind
	@$(SUITE) test $(ARGS)

test-all: $(INSTALLED) ## before a release, 45 minutes: lint, and every test there is
	@$(SUITE) all $(ARGS)

steady: $(INSTALLED) ## run tests twenty times on a busy machine: make steady ARGS='-k locks'
	@$(BIN)/python -m suite.steady $(ARGS)

lint: $(INSTALLED) ## check the style, the types and the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED) ## rewrite the code in the house style
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(INSTALLED) ## write those parts of the documents anew that are made of the code
	$(BIN)/python -m documents

chart: $(INSTALLED) ## write what is generated of the Helm chart, and lint it
	$(BIN)/python -m helm_chart
	$(BIN)/python -m pytest tests/unit/chart $(ARGS)

soak: $(INSTALLED) ## thousands of simulated clusters, logs and crash images, 200 real kills; the summaries go into docs
	$(BIN)/python -m simulator --seeds $(SOAK_SEEDS) --markdown docs/explanation/reliability.md $(ARGS)
	$(BIN)/python -m simulator.logs $(SOAK_SEEDS) --markdown docs/explanation/reliability.md
	$(BIN)/python -m disk_faults --images 20000 --markdown docs/explanation/reliability.md
	$(BIN)/python -m dodona_loadtest.kills --kills 200 --markdown docs/explanation/reliability.md

mutants: $(INSTALLED) ## change the cores a little, one change at a time, and see which tests notice
	$(BIN)/python -m mutation $(ARGS)

load: $(INSTALLED) ## load a private cluster with Locust, and judge what it did
	$(BIN)/python -m dodona_loadtest.load $(ARGS)

bench: $(INSTALLED) ## measure side by side with peers
	$(BIN)/python -m dodona_loadtest.bench $(ARGS)

bench-spark: $(INSTALLED) ## measure Spark's way in and out side by side with Parquet and PostgreSQL
	$(BIN)/python -m dodona_loadtest.bench --rows spark $(ARGS)

picture: $(INSTALLED) ## take the README's picture of the console, with the system's chromium and etcd
	$(BIN)/python -m integration.gateway.picture docs/console.png

# Our own packages are found in the checkout, by [tool.uv.sources]: no index is asked for them.
COMPILE := UV_NO_CONFIG=1 $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
  --no-emit-package dodona --no-emit-package dodona-server --custom-compile-command 'make lock' --quiet
COMPILE_PART := $(COMPILE) --constraint requirements.lock

lock: $(INSTALLED) ## pin what the projects ask for (ARGS=--upgrade: the newest that fit)
	$(COMPILE) $(PROJECTS) --output-file requirements.lock --all-extras $(ARGS)
	$(COMPILE_PART) pyproject.toml client/pyproject.toml --output-file helm/docker/server.lock --upgrade \
	  --extra tracing --extra replication
	$(COMPILE_PART) client/pyproject.toml --output-file helm/docker/sql.lock --upgrade --extra sql
	echo hatchling | $(COMPILE_PART) - --output-file helm/docker/build.lock --upgrade

clean: ## remove the environment and all else that was generated
	rm -rf .venv dist .mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find client oracle tablets loadtest tests -name __pycache__ -prune -exec rm -rf {} +

# ---- the environment

$(INSTALLED): requirements.lock $(PROJECTS)
	@$(MAKE) --no-print-directory check-python check-venv
	@echo "Preparing .venv with $$($(PYTHON) --version); the first time takes a minute or two"
	@$(PYTHON) -m venv .venv
	@$(PIP) --require-hashes -r <($(UV_LINES))
	@$(UV) --require-hashes -r requirements.lock || { \
	  echo "uv could not; pip does it (it may know another index): some minutes"; \
	  $(PIP) --use-pep517 --require-hashes -r requirements.lock; }
	@$(EDITABLE) -e ./client
	@$(EDITABLE) -e . -e ./loadtest
	@touch $@

# The client comes first: in an environment of an older commit, `dodona` has the command, too, and pip
# would remove it again after the servers' project has written it.
EDITABLE := $(PIP) --no-deps --no-build-isolation

# Of the lock file, what says which uv and with which hashes: pip takes twice as long for the rest.
UV_LINES := sed -n '/^uv==/,/^ *\# via/p' requirements.lock

check-python:
	@$(or $(PYTHON),false) -c '$(IS_NEW_ENOUGH)' 2>/dev/null || { \
	  echo "Dodona needs Python 3.11 or newer: install python3.11 and python3.11-venv," \
	    "or name another with PYTHON=..." >&2; exit 1; }

# Debian and Ubuntu keep the means to make an environment in a package of its own.
check-venv:
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null && exit; \
	package=python$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv; \
	if [[ $$(id -u) == 0 ]] && command -v apt-get >/dev/null; then \
	  echo "Installing $$package"; \
	  apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$package >/dev/null; \
	else \
	  echo "Dodona needs the package $$package: run apt-get install $$package" >&2; exit 1; \
	fi
