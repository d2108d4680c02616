#!/usr/bin/env bash
# Everything CI runs: release tests, conformance, real models in process and over HTTP, sanitizers, fuzzing.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

step "packages"
tools/install_packages.sh
make --no-print-directory .venv/.installed

step "format and layers"
mapfile -t sources < <(git ls-files '*.cc' '*.h')
clang-format --dry-run --Werror "${sources[@]}"
python3 tools/check_layers.py

step "release build"
cmake --preset release -Wno-dev --log-level=WARNING
cmake --build --preset release -- --quiet
step "release tests"
ctest --preset release --timeout 300

step "ONNX conformance"
build/release/tests/conformance

step "pretrained models against ONNX Runtime"
.venv/bin/python examples/build_models.py --output build/models
.venv/bin/python tests/models/compare.py --models build/models --chairlift build/release/bin/chairlift

step "AddressSanitizer, UBSan and fuzzing, with clang"
cmake --preset asan -Wno-dev --log-level=WARNING
cmake --build --preset asan -- --quiet
ctest --preset asan --timeout 600

step "ThreadSanitizer"
cmake --preset tsan -Wno-dev --log-level=WARNING
cmake --build --preset tsan --target device_test batching_test engine_test server_test -- --quiet
ctest --preset tsan --timeout 600 -R '^(device|batching|engine|server)$'

step "done"
