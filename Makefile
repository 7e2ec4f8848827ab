# The same targets on a desk and in continuous integration. Needs python3 (3.11 or newer) and make; everything else
# goes into .venv, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEVELOPING := $(VENV)/.developing
PYTEST := $(BIN)/python -m pytest

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install dev diagnose test test-unit test-all browser ray matrix check lint types schema docs bench proof soak audit clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

# What pip fetches is said as it comes: TensorFlow alone is several hundred megabytes.
FETCHED := sed -unE 's/^ *(Downloading|Using cached) ([^ ]+-[0-9][^-]*)-[^ ]+ (\(.*\)).*/  \2 \3/p; s/^Installing .*/  unpacking; a minute or so/p'
# Not compiled: Python does that with what is imported, when it is; all of it takes longer than what is used.
define pip
	@bash -o pipefail -c "$(BIN)/python -m pip install --no-compile --editable '$(1)' --constraint constraints.txt | $$FETCHED" \
		|| { echo "Error: installing into $(VENV) failed, see above; the same command goes on from here." >&2; exit 1; }
	@touch $@
endef
export FETCHED

install: $(INSTALLED) ## make .venv with what xttsbench needs to run

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("xttsbench needs Python 3.11 or newer, got " + sys.version.split()[0] + "; name one: make install PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "making $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing xttsbench and TensorFlow into $(VENV): once, a few minutes"
	$(call pip,.)

dev: $(DEVELOPING) ## add what tests, linting and the documentation need

$(DEVELOPING): $(INSTALLED)
	@echo "installing the development tools into $(VENV): once, a minute"
	$(call pip,.[dev])

diagnose: install ## the main job on real input: why a training step takes as long as it does
	@$(BIN)/xttsbench diagnose

# Three files at a time on two cores, since many tests wait for a process; in this order and not by their number of
# tests: the longest file is begun first (tests/conftest.py), few e2e tests take long, and the short files of unit tests
# fill up the end. What holds beside no neighbour runs alone.
AT_A_TIME := --numprocesses 3 --dist loadfile --no-loadscope-reorder
COMPUTING := --numprocesses 2 --dist loadfile --no-loadscope-reorder # unit tests wait for nothing

# Hundreds of processes import the package: compiled once, each starts a quarter of a second earlier.
COMPILED := $(BIN)/python -m compileall -q -j 2 xttsbench

# What failed beside two others, or while somebody else used the machine, runs once more alone, and that decides.
ALONE_AGAIN = || { [ $$? -eq 1 ] && echo "== once more, alone: what failed" && $(PYTEST) --last-failed --last-failed-no-failures none $(1); }

test: dev ## unit, tf and e2e tests, some twenty minutes on two cores
	@$(COMPILED)
	$(PYTEST) tests/e2e tests/tf tests/unit -m "not slow and not alone" $(AT_A_TIME) $(call ALONE_AGAIN,-m "not slow and not alone")
	@mkdir -p .benchmarks
	$(PYTEST) tests/e2e -m "not slow and alone" --benchmark-enable --benchmark-json=.benchmarks/last.json

test-unit: dev ## the tests without TensorFlow alone, some hundred seconds on two quiet cores
	@$(COMPILED)
	$(PYTEST) tests/unit -m "not slow" $(COMPUTING)

test-all: dev ## every test, the slow ones too, two hours
	$(PYTEST)

# Environments are kept in build/matrix; ONLY="2.19-3.11 2.20-3.12" and PARTS="unit e2e-script" leave the others out.
matrix: ## tests on each supported TensorFlow and each Python at hand; a quarter of an hour to more than an hour and 3 GB for each
	$(PYTHON) tests/matrix.py $(if $(ONLY),--only $(ONLY)) $(if $(PARTS),--parts $(PARTS))

# A Chromium on the path is used as it is; one elsewhere is named by XTTSBENCH_CHROMIUM.
browser: dev ## tests of report.html in a headless Chromium, which is installed (Debian, as root) where there is none
	@$(BIN)/python -m pip install --quiet --editable '.[dev,browser]' --constraint constraints.txt
	@test -n "$$XTTSBENCH_CHROMIUM" || command -v chromium || command -v chromium-browser || command -v google-chrome || { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends chromium fonts-dejavu-core; }
	$(PYTEST) tests/browser

# Ray comes into an environment of its own, which has all else from .venv: its packages are of no use without it.
RAY := build/ray
ray: dev ## tests of --on ray, on a cluster of several nodes on loopback; ten minutes
	@test -d $(RAY)/ray || $(BIN)/python -m pip install --quiet --target $(RAY) 'ray>=2.47' --constraint constraints.txt
	PYTHONPATH=$(CURDIR):$(CURDIR)/$(RAY) $(PYTEST) tests/e2e/test_on_ray.py

check: dev ## lint, formatting, types, layers, links of the documentation
	@$(MAKE) --no-print-directory --jobs 2 types lint

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python docs/links.py

types:
	$(BIN)/mypy

schema: dev ## write the JSON Schemas (of scenarios for editors, of report.json for programs), the reference pages and licences
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/licences.py

docs: dev ## write the reference pages, the licences and the picture of the README, and build the site in build/site
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/licences.py
	$(BIN)/python docs/picture.py reports/reference/tutorial/faster docs/images/verdict.svg
	$(BIN)/python docs/processes.py docs/images/processes.svg
	$(BIN)/python docs/notebook.py
	@$(BIN)/python -m pip install --quiet --editable '.[dev,docs]' --constraint constraints.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

bench: dev ## side-by-side comparisons, each of benchmarks/ but mutations, proof, diagnosis, fixes, growth, guard, noise, others, prove, soak, threads and those of several machines (two hours)
	@set -e; for script in $(filter-out benchmarks/mutations.py benchmarks/proof benchmarks/diagnosis benchmarks/fixes benchmarks/growth.py benchmarks/guard.py benchmarks/loops benchmarks/multi_worker_kills.py benchmarks/noise benchmarks/plan.py benchmarks/ranks.py benchmarks/remote_data.py benchmarks/service_kills.py benchmarks/service_slurm.py benchmarks/written.py benchmarks/others benchmarks/prove benchmarks/soak benchmarks/threads,$(sort $(wildcard benchmarks/*.py) $(patsubst %/__main__.py,%,$(wildcard benchmarks/*/__main__.py)))); do echo "== $$script"; $(BIN)/python $$script; done

proof: install ## whether the trainer learns to read, beside a control with other texts; some minutes
	$(BIN)/python benchmarks/proof

soak: dev ## an hour of diagnose, watch, sweep and train, over and over: what grows, or is left behind
	$(BIN)/python benchmarks/soak

# In an environment of its own, so that what pip-audit brings is neither audited nor in the way. By itself it says "no
# known vulnerabilities found" and ends well where its service knew none of the packages, or answered nothing.
AUDIT := build/audit
audit: ## whether a version in constraints.txt has a known vulnerability; asks the service that pip-audit asks
	@test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/python -m pip install --quiet pip-audit; }
	@code=0; $(AUDIT)/bin/pip-audit --no-deps --disable-pip --requirement constraints.txt >$(AUDIT)/found 2>&1 || code=$$?; \
		cat $(AUDIT)/found; unknown=$$(grep -c 'could not be audited' $(AUDIT)/found); \
		[ $$unknown = 0 ] || echo "Error: $$unknown of $$(wc -l <constraints.txt) versions are not audited" >&2; \
		[ $$unknown = 0 ] && exit $$code

clean: ## remove what building, linting and testing leave behind, but neither .venv nor reports
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
