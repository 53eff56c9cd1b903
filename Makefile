# `make demo` and `make test` need only Python 3.11+ and git: they make .venv and install everything into it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# `make test`: three workers for two CPUs, because much of the tests' time is waiting. Tests start many processes of the
# product: byte code is written even where the environment forbids it, so that not each of them compiles all again.
WORKERS ?= $(shell echo $$(( $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) * 3 / 2 )))
# `make images`: where to push, the tag of both images, and the program that builds (the first that is installed).
REGISTRY ?=
TAG    ?= 0.1.0
ENGINE ?= $(firstword $(foreach name,docker podman buildah,$(if $(shell command -v $(name) 2>/dev/null),$(name))))

.PHONY: help setup demo test browser images check faults bench drill live format clean
help:            ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## make .venv with the product and its tools
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "numa-extender needs Python 3.11 or newer; name one with PYTHON=…"; exit 1; }
	@echo 'making $(VENV) and installing into it: about a minute'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup      ## a sample cluster, a real scheduler request, our answer; then serves until Ctrl-C
	$(BIN)/numa-extender demo

test: setup browser check ## ruff, mypy, import contracts, pytest
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS)

browser:         ## Chromium for the tests of the page, by apt where it is missing and we may
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; fi \
	|| echo "Chromium could not be installed: the tests of the page are skipped (in CI: they fail)"

check: setup     ## ruff, mypy and import contracts only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
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

images:          ## build both container images and push them: make images REGISTRY=registry.example.org/team [TAG=0.1.0] [ENGINE=podman]
	@[ -n "$(REGISTRY)" ] || { echo "name the registry to push to: make images REGISTRY=registry.example.org/team"; exit 1; }
	@[ -n "$(ENGINE)" ] || { echo "make images needs docker, podman or buildah, and none of them is on PATH"; exit 1; }
	@for image in extender node-exporter; do \
	  name="$(REGISTRY)/numa-$$image:$(TAG)"; \
	  "$(ENGINE)" build -f "manifests/images/$$image.Containerfile" \
	    --build-arg "SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0)" -t "$$name" . && "$(ENGINE)" push "$$name" || exit 1; \
	done; \
	echo "pushed; in your overlay's images:"; for image in extender node-exporter; do \
	  echo "  - {name: numa-$$image, newName: $(REGISTRY)/numa-$$image, newTag: \"$(TAG)\"}"; done

format: setup    ## let ruff lay out and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:           ## remove everything that make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
