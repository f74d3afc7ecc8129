# Proxflow: `make` lists the targets, `make demo` shows the main job, `make test` runs the tests.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := .demo

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A virtual environment with exactly the locked releases, checked by hash.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Proxflow needs Python 3.11 or newer; found $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "Installing the locked packages into $(VENV) (a minute or two the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "Python cannot make virtual environments here; on Debian and Ubuntu: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Install everything into .venv
	@echo "Everything is in $(VENV). Next: . $(BIN)/activate"

.PHONY: demo
demo: $(STAMP) ## Bring a three-node environment up on the embedded lab
	@PYTHON=$(abspath $(BIN)/python) DEMO=$(DEMO) sh deployments/demo.sh

.PHONY: demo-template
demo-template: $(STAMP) ## Build a golden template and three clones on the embedded lab, without internet
	@PYTHON=$(abspath $(BIN)/python) DEMO=$(DEMO) sh deployments/demo.sh template

.PHONY: demo-down
demo-down: $(STAMP) ## Take environment, template and lab of the demos away again
	@PYTHON=$(abspath $(BIN)/python) DEMO=$(DEMO) sh deployments/demo.sh down

.PHONY: test
test: $(STAMP) ## Run the tests, a file to each core
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: acceptance
acceptance: $(STAMP) ## Boot Debian's installer and a cloud image from our media in QEMU (minutes; needs Debian packages)
	@$(BIN)/python -m pytest tests/acceptance/boots.py tests/acceptance/installs.py tests/acceptance/clouds.py -s -p no:cacheprovider

.PHONY: lint
lint: $(STAMP) ## Check style, types and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

.PHONY: format
format: $(STAMP) ## Put the code into its format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: bench
bench: $(STAMP) ## Print the figures of tests/benchmarks
	@$(BIN)/python -m tests.benchmarks

.PHONY: lock
lock: $(STAMP) ## Resolve the newest allowed releases into requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --extra lab --group dev --custom-compile-command "make lock" -o requirements.lock pyproject.toml

.PHONY: clean
clean: ## Remove everything that make made, the demo's cluster too
	@test ! -x $(BIN)/python || PYTHON=$(abspath $(BIN)/python) DEMO=$(DEMO) sh deployments/demo.sh stop || true
	rm -rf $(VENV) $(DEMO) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
