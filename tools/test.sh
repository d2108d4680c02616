#!/usr/bin/env bash
# Runs everything that CI runs: release tests, conformance, real models in process and over HTTP, sanitizers, fuzzing.
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
export CUDA=1  # kernels for GPUs are compiled wherever CUDA's toolkit is, though nothing here runs them
step() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

step "packages"
tools/install_packages.sh
make --no-print-directory .venv/.installed

step "format, layers and clang-tidy on changed files"
tools/lint.sh --changed

step "release build"
# One architecture of GPUs is enough to compile for: newer ones take its code, too.
cmake --preset release -DCMAKE_CUDA_ARCHITECTURES=80 -Wno-dev --log-level=WARNING
cmake --build --preset release -- --quiet
step "release tests"
ctest --preset release -j "$(nproc)" --timeout 300

step "the Python package"
make --no-print-directory python
.venv/bin/python -m pytest -q
.venv/bin/python -m pytest -q tests/mistakes
step "its wheel on a bare Debian"
make --no-print-directory test-wheel

step "the Debian package and the container image"
make --no-print-directory test-packages

step "ONNX conformance"
build/release/tests/conformance
.venv/bin/python tools/onnx_node_cases.py --output build/onnx
build/release/tests/conformance --data build/onnx --not-run tests/conformance/not_run_onnx.txt

step "pretrained models against ONNX Runtime"
.venv/bin/python examples/build_models.py --output build/models
.venv/bin/python tests/models/compare.py --models build/models --chairlift build/release/bin/chairlift
step "what ONNX Runtime's optimiser and quantisers write"
.venv/bin/python tests/models/contrib_ops.py --chairlift build/release/bin/chairlift
.venv/bin/python tests/models/function_graphs.py --chairlift build/release/bin/chairlift
.venv/bin/python tests/models/ort_writers.py --chairlift build/release/bin/chairlift
step "networks in stages"
.venv/bin/python tests/models/staged_networks.py --chairlift build/release/bin/chairlift

step "other people's clients over HTTP"
make --no-print-directory build/clients/.installed
build/clients/bin/python tests/clients/run.py --models build/models --chairlift build/release/bin/chairlift

step "the documentation: its site, links, code and commands"
make --no-print-directory docs .venv/.pages
build/docs/bin/python -m pytest -q tests/docs

step "AddressSanitizer, UBSan and fuzzing, with clang"
cmake --preset asan -Wno-dev --log-level=WARNING
cmake --build --preset asan -- --quiet
ctest --preset asan -j "$(nproc)" --timeout 1200

step "ThreadSanitizer"
cmake --preset tsan -Wno-dev --log-level=WARNING
cmake --build --preset tsan --target device_test engine_test server_test -- --quiet
ctest --preset tsan -j "$(nproc)" --timeout 1200 -R '^(device|engine|engine_2|server)$'

step "done"
