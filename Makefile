# Every target prepares what it needs, from nothing but python3 and pip.
# The preparation is remembered in .venv, so the second call starts at once.
#
#   make test ARGS="tests/kernel -x"      ARGS goes to the program behind the target
#   make setup PYTHON=python3.13          another interpreter (after `make clean`)

PYTHON ?= python3
# Many tests wait for processes, servers and disks rather than compute.
WORKERS ?= 4
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python

# Compiled modules are kept, whatever the surroundings say: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

MADE := $(VENV)/.made
CORE := $(VENV)/.core
DEV := $(VENV)/.dev

# uv when it is there and works, else pip: the same packages either way, only slower.
install = { [ -x $(VENV)/bin/uv ] && $(VENV)/bin/uv pip install --quiet --python $(PY) -c constraints.txt $(1); } \
	|| $(PY) -m pip install --quiet -c constraints.txt $(1)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-all check coverage bench constraints clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

setup: $(DEV) ## make .venv with everything needed to work on detent
	@echo "Ready: $(PY)"

demo: $(CORE) ## a mailbox answered step by step, with no model and no key
	$(VENV)/bin/detent warranty demo $(ARGS)

test: $(DEV) ## run the tests, with a sample of the large matrices
	@# The first time, one process compiles the tests instead of every worker for itself.
	@[ -d tests/__pycache__ ] || $(PY) -m pytest --collect-only -qq >/dev/null 2>&1 || true
	$(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(LONGER) $(ARGS)

test-all: export DETENT_TEST_ALL := 1
test-all: LONGER := --timeout=1200
test-all: test ## run them with every case, every example and every kill point

check: $(DEV) ## style, types and walls
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(if $(wildcard tests examples),$(VENV)/bin/mypy $(wildcard tests examples))
	$(VENV)/bin/lint-imports

coverage: $(DEV) ## run the tests and show which lines they never reach
	$(VENV)/bin/coverage erase
	$(VENV)/bin/coverage run -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)
	$(VENV)/bin/coverage combine --quiet
	$(VENV)/bin/coverage report

bench: $(DEV) ## measure, side by side with other engines
	$(PY) -m benchmarks $(ARGS)

constraints: $(MADE) ## pin all dependencies anew (ARGS=--upgrade takes newer ones)
	cp constraints.txt $(VENV)/constraints.txt 2>/dev/null || true
	$(VENV)/bin/uv pip compile --quiet pyproject.toml --all-extras --universal --python-version 3.11 \
		--no-header --no-annotate --no-emit-index-url --output-file $(VENV)/constraints.txt $(ARGS)
	{ echo "# Every dependency, extras included, at one version. Regenerate with: make constraints"; \
		cat $(VENV)/constraints.txt; } > constraints.txt

clean: ## remove .venv, caches and build results (never .detent, which holds runs)
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.*' -prune -exec rm -rf {} +

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "detent needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12")'
	@echo "Making $(VENV) …"
	@# A system Python without ensurepip still makes a venv; its own pip then fills it.
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
		&& $(PYTHON) -m pip --python $(PY) install --quiet pip; }
	@$(PY) -m pip install --quiet uv || echo "uv is not available here: using pip"
	@touch $@

$(CORE): $(MADE) pyproject.toml constraints.txt
	@echo "Installing detent …"
	@$(call install,-e .)
	@touch $@

$(DEV): $(MADE) pyproject.toml constraints.txt
	@echo "Installing detent and what it takes to work on it …"
	@$(call install,-e '.[dev]')
	@touch $(CORE) $@
