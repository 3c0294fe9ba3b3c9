# Everything a fresh machine needs is Python 3.11 or newer (with venv) and make.
#
#   make run     install, start a three-node cluster, show what it does, leave it running
#   make test    install the test tools, run every check
#   make help    the rest

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
GO ?= $(shell command -v go || echo /usr/local/go/bin/go)
TOXIPROXY_VERSION := v2.12.0
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help run test unit lint format docs bench fuzz simulate slice live toxiproxy clean

help: ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Tenure needs Python 3.11 or newer on PATH (or: make PYTHON=/path/to/python3.11 …)" >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "PYTHON=$(PYTHON) is no program here; name Python 3.11 or newer, or leave it out" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tenure needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)" >&2; exit 1; }
	@echo "making the virtual environment $(VENV)"
	@trap 'rm -rf $(VENV); exit 130' INT; said=$$($(PYTHON) -m venv $(VENV) 2>&1) || \
		{ rm -rf $(VENV); echo "$$said" >&2; echo "$(PYTHON) can't make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

# An environment that was made by an older Python would send pip searching for ever.
define check-python
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(VENV) was made with $$($(BIN)/python -V 2>&1), and Tenure needs 3.11 or newer: make clean, then again" >&2; exit 1; }
endef

$(VENV)/.server: pyproject.toml $(BIN)/python
	$(check-python)
	@echo "installing the server and the client into $(VENV) (about half a minute the first time)"
	@$(PIP) install -e '.[server,speed]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(BIN)/python
	$(check-python)
	@echo "installing the server, the client and the test tools into $(VENV) (about half a minute the first time)"
	@$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.server

run: $(VENV)/.server ## start three nodes, tell the story, leave the cluster running (ARGS=--exit: end after the story)
	@$(BIN)/python examples/story.py $(ARGS)

test: lint unit slice ## every check: style, types, architecture, tests, 20 simulated hours under faults

lint: $(VENV)/.dev ## ruff, mypy --strict, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: $(VENV)/.dev $(if $(shell command -v $(GO)),$(BIN)/toxiproxy-server) ## the tests (ARGS='tests/lease -k queue': some of them)
	@$(BIN)/python $(if $(ARGS),-m pytest $(ARGS),tests/side_by_side.py)

format: $(VENV)/.dev ## put the sources into the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.dev ## make a site of all pages in build/site; a link that leads nowhere fails it
	@$(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: $(VENV)/.dev ## measure speed: server and load in one run (ARGS='--quick', '--json FILE')
	@$(BIN)/python bench/bench.py $(ARGS)

$(VENV)/.fuzz: pyproject.toml $(VENV)/.dev
	@$(PIP) install -e '.[fuzz]'
	@touch $@

fuzz: $(VENV)/.fuzz ## fuzz the decoders, guided by coverage, each in turn (ARGS='--seconds 600', 'backup')
	@$(BIN)/python tests/fuzz/fuzz_run.py $(ARGS)

simulate: $(VENV)/.dev ## simulate whole clusters under faults (ARGS='--seeds 1:200 --jobs 2')
	@$(BIN)/python -m tenure_chaos.cli sim $(ARGS)

slice: $(VENV)/.dev ## 20 simulated cluster-hours under faults, with every coverage mark reached (about four minutes)
	@$(BIN)/python -m tenure_chaos.cli sim --hours 20 --jobs $(JOBS) --marks $(ARGS)

live: $(VENV)/.dev $(if $(shell command -v $(GO)),$(BIN)/toxiproxy-server) ## real nodes under real faults, with a report (ARGS='--nodes 5 --seconds 60')
	@$(BIN)/python -m tenure_chaos.cli live $(ARGS)

toxiproxy: $(BIN)/toxiproxy-server ## install the Toxiproxy server for the live bench (needs Go)

$(BIN)/toxiproxy-server: | $(BIN)/python
	@command -v $(GO) >/dev/null || { echo "Toxiproxy is built with Go 1.23 or newer, and $(GO) is not on PATH (or: make GO=/path/to/go toxiproxy)" >&2; exit 1; }
	@echo "installing Toxiproxy $(TOXIPROXY_VERSION) into $(BIN)"
	@GOBIN="$$(pwd)/$(VENV)/toxiproxy" $(GO) install github.com/Shopify/toxiproxy/v2/cmd/server@$(TOXIPROXY_VERSION)
	@mv $(VENV)/toxiproxy/server $@ && rmdir $(VENV)/toxiproxy

clean: ## remove what the targets made
	@rm -rf $(VENV) .tenure-chaos .tenure-fuzz .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
