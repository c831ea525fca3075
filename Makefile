# Every target creates its virtual environment first: only Python 3.11+ and make are required.
PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 6
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test test-others test-slow test-engines test-boards fuzz fuzz-inputs soak mutate lint format bench bench-quick generate pictures proto site clean \
	tools image chart dist plugin sbom audit version release-notes helm-test kind-load push-image push-chart publish

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)

demo: $(STAMP)  ## watch GPU replicas follow a load from zero up and back (about a minute)
	$(BIN)/tidegate demo $(ARGS)

# Workers share the kernels, which are therefore compiled once before, on two cores: the first two processes compile
# kernels of different modules, the next two the rest. They share the byte code of the tests too, into which pytest
# writes its assertions: one collects before, once, or each would do the same 10 s of work. A third of the suite's time
# is waiting for processes and sockets: six workers keep two cores busy.
# The kernels are those of the image, so that no test has to compile them again: see the Dockerfile.
# Without byte code on the disk, which some containers switch off, each process of a test would compile the project again.
KERNELS ?= scaler.replay.engine
test: export PYTHONDONTWRITEBYTECODE :=
test: export NUMBA_CPU_NAME := generic
test: export NUMBA_CPU_FEATURES :=
test: $(STAMP)  ## run the tests (ARGS="-k name" to choose, JOBS=0 for one at a time)
	@compile() { $(BIN)/python -c "import gc; gc.disable(); import $$1"; }; \
	collect() { $(BIN)/python -m pytest --collect-only -q -n 0 $(ARGS) >/dev/null; touch $(VENV)/.collected; }; \
	compile 'exporter.textformat.scanner, scaler.policy.batch' & \
	compile 'scaler.policy.kernel, scaler.signals.slot_sums'; wait; \
	compile scaler.engine.loop & compile '$(KERNELS)'; [ -e $(VENV)/.collected ] || collect; wait
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Python 3.11 to 3.13, from PATH or pyenv, except the version of `make test`. Versions may differ in annotations and
# dataclasses (config, workloads), asyncio (scrape, ha, and the daemon with its servers), numba's kernels (signals,
# textformat), and parsing by the standard library (discovery, controllers). Deployment, documents, servers of other
# projects and simulated weeks do not depend on the version.
VERSIONED := $(addprefix tests/exporter/,attribution discovery scrape textformat) tests/integration/daemon/test_storyboard.py \
	$(addprefix tests/scaler/,api/keda api/http config controllers ha signals workloads) tests/scaler/cli/test_commands.py
VERSIONS ?= 3.11 3.12 3.13
TARGET   ?= test
test-others:  ## run the version-dependent tests on every other supported Python of this machine
	@for version in $(VERSIONS); do \
	  for python in "$$(command -v python$$version)" "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python; do \
	    [ -x "$$python" ] && "$$python" -V >/dev/null 2>&1 || continue; \
	    [ "$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = $$version ] && continue 2; \
	    echo "== Python $$version"; \
	    $(MAKE) --no-print-directory $(TARGET) PYTHON="$$python" VENV=.venv-$$version KERNELS=scaler.policy.kernel \
	      ARGS="$(VERSIONED) $(ARGS)" || exit 1; \
	    continue 2; \
	  done; echo "== Python $$version: not installed, not run"; \
	done

test-slow: $(STAMP)  ## run the simulated weeks that `make test` leaves out
	$(BIN)/python -m pytest -m slow tests/integration/storyboards

# Real programs that are too large for the suite. Those of PyPI have an environment each, because their pins are not those
# of Tidegate. The tests of what cannot be installed here are skipped, and listed at the end. vLLM needs 3.5 GB and a torch
# for CPU; beside it, packages that need a torch for GPUs end its import.
ENGINES     ?= vllm litellm nats rabbitmq ray
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
test-engines: $(STAMP)  ## run the tests with real engines (ENGINES="vllm ..." to choose; installs gigabytes)
	@for engine in $(ENGINES); do \
	  $(MAKE) --no-print-directory .venv-$$engine/.installed || echo "== $$engine: not installed, its tests are skipped"; \
	done
	$(BIN)/python -m pytest -n 0 -m engines tests/engines $(ARGS)

$(addprefix .venv-,$(addsuffix /.installed,$(ENGINES))): .venv-%/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-$*/bin/pip install --quiet --group $* || \
	  .venv-$*/bin/pip install --quiet --group $* --extra-index-url $(TORCH_INDEX)
	.venv-$*/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

GRAFANA := tests/dashboards/grafana
test-boards: $(STAMP) $(GRAFANA)/node_modules/.installed  ## show the dashboards with Grafana's own code (needs Node 18 and npm)
	$(BIN)/python -m pytest -n 0 tests/dashboards/test_rendering.py $(ARGS)

$(GRAFANA)/node_modules/.installed: $(GRAFANA)/package-lock.json
	cd $(GRAFANA) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

fuzz: $(STAMP)  ## search for a history of responses that scales busy workloads to zero (MINUTES=60)
	TIDEGATE_FUZZ_MINUTES=$(or $(MINUTES),60) $(BIN)/python -m pytest tests/scaler/engine/decider/test_histories.py

# Everything that comes from outside: responses, answers of databases, configuration, objects, calls, states, frames.
INPUTS := tests/exporter $(addprefix tests/scaler/,api config engine/checkpoint ha lint replay/traces workloads)
fuzz-inputs: $(STAMP)  ## search for input that crashes, hangs or yields an invented number (MINUTES=60)
	@end=$$(($$(date +%s) + 60 * $(or $(MINUTES),60))); while [ $$(date +%s) -lt $$end ]; do \
	  $(BIN)/python -m pytest -q -n $(JOBS) -m "hypothesis and not slow" --hypothesis-profile=fuzz $(INPUTS) || exit 1; \
	done

soak: $(STAMP)  ## simulate a week with faults; print its answers and memory (DAYS=7 SEED=1; five minutes)
	TIDEGATE_SOAK_DAYS=$(or $(DAYS),7) TIDEGATE_SOAK_SEED=$(or $(SEED),1) \
	  $(BIN)/python -m pytest -q -s -n 0 -m slow tests/integration/soak

# Each change of one operator, constant or result that the tests of its file do not notice.
FILES  ?= exporter/textformat/parser.py scaler/policy/idleness.py scaler/api/metrics_api/documents.py
mutate: $(STAMP)  ## change FILES one operator at a time; print what no test notices (TESTS= SAMPLE=50 SEED=1 MINUTES=30)
	$(BIN)/python tools/mutate.py $(FILES) --tests $(TESTS) --sample $(or $(SAMPLE),50) --seed $(or $(SEED),1) --minutes $(or $(MINUTES),30)

lint: $(STAMP)  ## ruff, mypy --strict, import contracts, names and log events
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_names.py

format: $(STAMP)  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## measure, and write benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-quick: $(STAMP)  ## the same with fewer rounds, without the largest sizes
	$(MAKE) --no-print-directory bench ARGS=--quick

generate: $(STAMP)  ## rewrite generated files: docs, the chart's schema and alerts
	$(BIN)/python -m docs.generate.configuration > docs/reference/configuration.md
	$(BIN)/python -m docs.generate.triggers > docs/reference/triggers.md
	$(BIN)/python -m docs.generate.metrics > docs/reference/metrics.md
	$(BIN)/python -m scaler.lint.pages > docs/reference/rules/README.md
	$(BIN)/python deploy/values_schema.py
	$(BIN)/python tools/release.py krew
	$(BIN)/python -W ignore::DeprecationWarning -m dashboards.build

pictures: $(STAMP)  ## make the pictures of docs/images anew (needs chromium)
	$(BIN)/pip install --quiet pillow
	$(BIN)/python -m tests.tools.pictures

proto:  ## regenerate the gRPC stubs from the .proto
	$(PYTHON) -m venv .venv-proto
	.venv-proto/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-proto/bin/pip install --quiet --group proto
	.venv-proto/bin/python -m tests.tools.generate_proto

SITE_STAMP := .venv-site/.installed
site: $(SITE_STAMP)  ## build the documentation's site in site/
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --quiet --strict

$(SITE_STAMP): pyproject.toml
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-site/bin/pip install --quiet --group site
	@touch $@

# What the image installs, with this machine's Python: the same command as in the Dockerfile, and no pip.
IMAGE_ENV := .venv-image
$(IMAGE_ENV)/.installed: pyproject.toml Dockerfile
	rm -rf $(IMAGE_ENV)
	$(PYTHON) -m venv --without-pip $(IMAGE_ENV)
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-audit/bin/pip install --quiet --group audit
	.venv-audit/bin/pip --python $(IMAGE_ENV)/bin/python install --quiet '.[nvml]'
	@touch $@

SBOM = dist/tidegate-$(VERSION:v%=%).cdx.json
sbom: $(IMAGE_ENV)/.installed  ## list what the image installs, with versions and licences (CycloneDX, in dist/)
	@mkdir -p dist
	.venv-audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-file $(SBOM) $(IMAGE_ENV)
	.venv-audit/bin/python tools/dependencies.py sbom $(SBOM)

# The database is PyPI's. pip-audit succeeds if it knows no package, so its report is compared with the SBOM.
audit: sbom  ## look for known vulnerabilities in what the image installs (needs pypi.org)
	@rm -f dist/audit.json dist/audit.log
	@.venv-audit/bin/pip-audit --path $(IMAGE_ENV)/lib/python3.*/site-packages --progress-spinner off --timeout 15 \
	  --format json --output dist/audit.json 2>dist/audit.log || tail -1 dist/audit.log
	@.venv-audit/bin/python tools/dependencies.py audit dist/audit.json $(SBOM)

# A release: .github/workflows/release.yml runs these targets. Each target that publishes nothing runs on any machine.
REGISTRY ?= ghcr.io/tidegate
VERSION  ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE     = $(REGISTRY)/tidegate:$(VERSION:v%=%)
REVISION  = $(shell git rev-parse HEAD)
ENGINE   ?= $(shell for each in docker podman; do $$each version >/dev/null 2>&1 && echo $$each && break; done)

tools:  ## install the programs of Debian that tests use (as root)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	  chromium prometheus redis-server redis-sentinel gcc libc6-dev >/dev/null

image:  ## build the image for this machine
	@[ -n "$(ENGINE)" ] || { echo "make image: no container engine answers (docker, podman)"; exit 2; }
	$(ENGINE) build --build-arg REVISION=$(REVISION) --tag $(IMAGE) .

chart: $(STAMP)  ## lint and pack the chart in dist/
	$(BIN)/python tools/release.py chart

dist: $(STAMP)  ## build the wheel and the source archive in dist/
	$(BIN)/python -m hatchling build --directory dist

plugin: $(STAMP)  ## pack the kubectl plugin in dist/
	$(BIN)/python tools/release.py plugin

version: $(STAMP)  ## write VERSION=X.Y.Z into every file that states it
	$(BIN)/python tools/release.py set $(VERSION)
	$(MAKE) --no-print-directory generate

release-notes: $(STAMP)  ## write dist/notes.md for a tag (VERSION=vX.Y.Z), which must be the project's version
	$(BIN)/python tools/release.py notes $(VERSION)

kind-load:
	kind load docker-image $(IMAGE)

helm-test:  ## install the chart in the present cluster without KEDA, and run its tests
	@helm version >/dev/null 2>&1 && kubectl version >/dev/null 2>&1 || \
	  { echo "make helm-test: helm and a cluster must answer"; exit 2; }
	helm upgrade --install tidegate deploy/chart --namespace tidegate --create-namespace --wait --timeout 10m \
	  --set mode=hpa --set image.repository=$(REGISTRY)/tidegate --set image.tag=$(VERSION:v%=%)
	helm test tidegate --namespace tidegate --logs

# Under emulation the kernels are compiled for the CPU "generic" of each architecture, as natively. The digest that is
# signed is the registry's answer, never the tag, which may move.
push-image:
	mkdir -p dist
	docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --provenance=mode=max --push \
	  --build-arg REVISION=$(REVISION) --tag $(IMAGE) --metadata-file dist/image.json .
	cosign sign --yes "$(REGISTRY)/tidegate@$$(sed -n 's/.*"containerimage.digest": "\(.*\)".*/\1/p' dist/image.json)"

push-chart: chart
	helm push dist/tidegate-$(VERSION:v%=%).tgz oci://$(REGISTRY)/charts 2>&1 | tee dist/chart.txt
	cosign sign --yes "$(REGISTRY)/charts/tidegate@$$(sed -n 's/^Digest: //p' dist/chart.txt)"
	oras push $(REGISTRY)/charts/tidegate:artifacthub.io \
	  --config /dev/null:application/vnd.cncf.artifacthub.config.v1+yaml \
	  deploy/chart/artifacthub-repo.yml:application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml

publish: release-notes chart plugin sbom
	gh release create v$(VERSION:v%=%) --verify-tag --notes-file dist/notes.md \
	  dist/tidegate-$(VERSION:v%=%).tgz dist/kubectl-tidegate-$(VERSION:v%=%).zip $(SBOM) deploy/kubectl/tidegate.yaml

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-* dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

# pip 25.1 is the first with dependency groups (PEP 735).
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tidegate needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) -V). Try: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable . --group dev
	@touch $@
