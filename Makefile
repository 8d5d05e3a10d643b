# Everything here is quiet when nothing is to do. What is installed where: docs/install.md
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON_IN_VENV := .venv/bin/python
ENGINE := $(PYTHON_IN_VENV) scripts/engine
# The engine is asked for when a recipe runs, not when make reads this file.
WITH_ENGINE = export DOCKER_HOST="$$($(ENGINE) status)" &&

# On a loaded machine real processes are slow; what needed its second try is named at the end.
ONE_MORE_TRY = --reruns 1 -rfEsR

.PHONY: help run test check setup venv engine image daemon-image bench lock stop clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## set up what is missing, then let three agents build the example website
	@$(WITH_ENGINE) scripts/demo

test: setup ## set up what is missing, then run every test, real Docker included
	@$(WITH_ENGINE) $(PYTHON_IN_VENV) -m pytest $(ONE_MORE_TRY) -n auto tests/unit tests/property tests/git tests/contracts
	@$(WITH_ENGINE) $(PYTHON_IN_VENV) -m pytest $(ONE_MORE_TRY) tests/docker tests/e2e

check: venv ## format, lint, types, import contracts, fast tests (under a minute, no Docker)
	@.venv/bin/ruff format --check . scripts/engine scripts/image
	@.venv/bin/ruff check . scripts/engine scripts/image
	@.venv/bin/mypy
	@.venv/bin/mypy --strict --scripts-are-modules scripts/engine
	@.venv/bin/mypy --strict --scripts-are-modules scripts/image
	@.venv/bin/lint-imports
	@$(PYTHON_IN_VENV) -m pytest -q -n auto tests/unit

setup: image ## the virtual environment, a Docker engine, the sandbox image

venv: ## .venv with the packages of requirements.lock
	@scripts/venv

engine: venv ## a Docker engine that answers (installed and started when there is none)
	@$(ENGINE) ensure

image: engine ## the image massgend/sandbox, rebuilt when its inputs changed
	@$(PYTHON_IN_VENV) scripts/image ensure

daemon-image: image ## the image massgend/daemon (optional; see docs/install.md)
	@$(PYTHON_IN_VENV) scripts/image daemon

bench: setup ## measure massgend's overhead
	@$(WITH_ENGINE) $(PYTHON_IN_VENV) -m bench.overhead

lock: venv ## write requirements.lock anew (UPGRADE=--upgrade takes newer versions)
	@scripts/lock $(UPGRADE)

stop: ## stop the Docker engine that massgend started (never another one)
	@if [ -x $(PYTHON_IN_VENV) ]; then $(ENGINE) stop; else python3 scripts/engine stop; fi

clean: ## remove .venv and caches (not images, engine or runs)
	@rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
