# Run `make` to see what there is to run.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# The minor version of Spark that test-spark runs on, and the minors that a wheel has jars for.
SPARK ?= 4.3
OTHER_SPARKS := 4.0 4.1 4.2
# Processes that tests run in. Many tests wait for other processes, so three keep two cores busy.
WORKERS ?= 3
# More arguments for pytest, the demo or the benchmarks: make test ARGS="-k pruning"
ARGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test quick lint format typecheck bench soak docs wheel clean check-java test-spark test-sparks browser

# The tests of the explorer drive Chromium. Where it is missing, they are left out, and that is said.
HAS_BROWSER := $(shell command -v chromium >/dev/null && command -v chromedriver >/dev/null && echo yes)

help: ## Print this help
	@echo "Usage: make <target> [PYTHON=python3.12] [SPARK=4.1] [ARGS=\"...\"]"
	@echo
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with everything in it

demo: check-java setup ## Show a partitioned table at work
	@$(PY) examples/demo.py $(ARGS)

test: check-java setup lint typecheck ## Lint, check types, run every test and every code block of the docs
	@$(if $(HAS_BROWSER),,echo "Chromium or chromedriver is missing, so tests/explore/test_browser.py is left out: 'make browser' installs them.")
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
	  $(if $(HAS_BROWSER),,-m "not soak and not browser") $(ARGS)

test-spark: check-java setup ## Run all tests of the Spark bridge on another Spark: SPARK=4.1
	@python=$$($(PY) sparks.py $(SPARK)) && \
	  $$python -m pytest tests/spark -n $(WORKERS) --dist loadfile --no-loadscope-reorder -rs $(ARGS)

test-sparks: check-java setup ## Run a short part of them on each Spark but the newest
	@for spark in $(OTHER_SPARKS); do \
	  if python=$$($(PY) sparks.py $$spark); then \
	    echo "Spark $$spark:"; $$python -m pytest tests/spark/test_short.py -q -rs $(ARGS) || exit 1; \
	  else echo "The tests on Spark $$spark are left out." >&2; fi; done

quick: setup lint typecheck ## Lint, types, and the tests of model and storage: under two minutes
	@$(PY) -m pytest tests/model tests/storage tests/test_layers.py tests/test_lru.py -n 2 -q $(ARGS)

lint: setup ## Check style and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

format: setup ## Fix style and format in place
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

typecheck: setup ## Check types in src, strictly
	@$(PY) -m mypy

bench: setup ## Measure speed and memory against baselines in the same run
	@$(PY) -m bench $(ARGS)

soak: setup ## Run the long tests under load
	@$(PY) -m pytest -m soak $(ARGS) || { \
	  code=$$?; [ $$code -eq 5 ] || exit $$code; echo "No soak test was selected."; }

docs: setup ## Build the site of docs/ into build/site, and run the code blocks of README.md and docs/
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "The site is in build/site; '$(PY) -m mkdocs serve' shows it in a browser."
	@$(PY) -m pytest tests/test_docs.py $(ARGS)

browser: ## Install Chromium and its driver, for the tests of the explorer (Debian and Ubuntu)
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  command -v apt-get >/dev/null || { \
	    echo "install chromium and chromedriver: the tests look for them on the PATH" >&2; exit 1; }; \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -y -qq \
	    --no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null; }

wheel: check-java setup ## Build the wheel, with a jar of the bridge for each Spark in it
	@for spark in $(OTHER_SPARKS); do $(PY) sparks.py $$spark >/dev/null || exit 1; done
	@$(PY) -m hatchling build --target wheel

clean: ## Remove caches and build products (.venv stays)
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# The stamp is a copy of the pyproject.toml that was installed, so that a file which is only
# newer, after a checkout for example, installs nothing and needs no network.
$(STAMP): pyproject.toml
	@$(PY) -m pip --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Python 3.11 or newer is needed and '$(PYTHON)' is not one: name one with 'make setup PYTHON=python3.12'." >&2; exit 1; }; \
	  $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "'$(PYTHON)' cannot make virtual environments: install what it lacks with '$$([ "$$(id -u)" = 0 ] || echo 'sudo ')apt-get install python3-venv'." >&2; exit 1; }; \
	  $(PYTHON) -m venv $(VENV); }
	@cmp -s pyproject.toml $(STAMP) || { \
	  echo "Installing into $(VENV); the first time takes a few minutes."; \
	  $(PY) -m pip install --quiet --disable-pip-version-check --editable '.[spark,dev]'; }
	@cp pyproject.toml $(STAMP)

# Spark starts the Java of JAVA_HOME, or else the one on the PATH; so does this check.
check-java:
	@found=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 \
	  | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1); \
	[ "$${found:-0}" -ge 17 ] || { \
	  place="the PATH"; [ -z "$$JAVA_HOME" ] || place="JAVA_HOME ($$JAVA_HOME)"; \
	  if [ "$$(uname)" = Darwin ]; then install="brew install --cask temurin@17"; \
	  else \
	    for version in 21 17; do \
	      apt-cache policy openjdk-$$version-jre-headless 2>/dev/null \
	        | grep -q 'Candidate: [0-9]' && break; done; \
	    install="$$([ "$$(id -u)" = 0 ] || echo 'sudo ')apt-get install openjdk-$$version-jre-headless"; \
	  fi; \
	  echo "Java 17 or newer is needed and $$place has $${found:+only Java }$${found:-none}: install it with '$$install'." >&2; exit 1; }
