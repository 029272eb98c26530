# Every task of the project. `make app` is for using it, `make test` for changing it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup app check test golden bench screenshots train-tiny browser

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
GOLDEN ?= $(wildcard ../shared/golden) tests/golden/files

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## make .venv with the pinned packages; quick when up to date

$(STAMP): requirements.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; run: make setup PYTHON=python3.11" >&2; exit 1; }
	$(BIN)/python -m pip install -q --disable-pip-version-check --prefer-binary --no-compile -r requirements.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@# Compiles what the page imports, and only that, so that its first start is as quick as any.
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c 'import alembic.command, gradio, sqlalchemy.orm, torch'
	@touch $@

app: setup ## open the page on 127.0.0.1
	$(BIN)/elf serve

check: setup ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check browser ## everything CI runs
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

# The page is tested in Chromium; without one those tests are skipped and say so.
browser:
	@command -v chromium >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium \
	    || echo "Chromium could not be installed; the page tests will be skipped" >&2; \
	else echo "Chromium is missing; the page tests will be skipped" >&2; fi

golden: setup ## compare both backends with the reference arrays
	$(BIN)/python -m tests.golden $(GOLDEN)

bench: setup ## ratios of our step times to bare matrix products
	$(BIN)/python -m benchmarks

train-tiny: setup ## train a toy model for a few steps, to see that training runs
	rm -rf runs/tiny
	$(BIN)/elf-train --config tiny

screenshots: setup browser ## pictures of every tab, light, dark and on a phone, into docs/
	$(BIN)/python -m tests.app.screenshots
