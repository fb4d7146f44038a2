# Everything a newcomer types. Needs make and Python 3.11 or newer; the rest is put into .venv here.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= runs/demo
ITEMS ?= 1000
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench soak docs clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not installed; install Python 3.11 or newer, or name yours: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

demo: $(STAMP) ## train on counting, compare base and trained model on the same items, write the report (minutes on a laptop)
	$(BIN)/seegrad train count --out $(OUT) --resume
	$(BIN)/seegrad eval tiny --recipe count --split test --num-items $(ITEMS) --out $(OUT)/eval/base-test.json
	$(BIN)/seegrad eval $(OUT) --split test --num-items $(ITEMS) --out $(OUT)/eval/trained-test.json
	$(BIN)/seegrad eval tiny --recipe count --split ood --num-items $(ITEMS) --out $(OUT)/eval/base-ood.json
	$(BIN)/seegrad eval $(OUT) --split ood --num-items $(ITEMS) --out $(OUT)/eval/trained-ood.json
	$(BIN)/seegrad report $(OUT)

test: $(STAMP) ## the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS)

check: $(STAMP) ## format, lint, types, import contracts, generated docs, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/make_cli_docs.py --check
	$(MAKE) test

format: $(STAMP) ## format and sort imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## the measurements behind the tables
	$(BIN)/python -m bench.algorithms
	$(BIN)/python -m bench.graders
	$(BIN)/python -m bench.learning

soak: $(STAMP) ## long tests: kills, full disks, many resumes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m soak

docs: $(STAMP) ## regenerate docs/cli.md
	$(BIN)/python scripts/make_cli_docs.py

clean: ## remove the environment and caches (runs/ stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache dist
