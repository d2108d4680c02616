#!/usr/bin/env bash
# Runs everything that CI runs: release tests, conformance, real models in process and over HTTP, sanitizers, fuzzing.
# The seconds of each step are in build/test_times.json and are printed at the end.
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
export CUDA=1  # kernels for GPUs are compiled wherever CUDA's toolkit is, though nothing here runs them

mkdir -p build
times=build/test_times.txt
: >"$times"
# step NAME COMMAND...: runs the command and notes how long it took.
step() {
  local name=$1 start=$SECONDS
  shift
  printf '\n== %s (at %s s)\n' "$name" "$start"
  "$@"
  printf '%s\t%s\t%s\n' "$start" "$((SECONDS - start))" "$name" >>"$times"
}

prepare() {
  tools/install_packages.sh
  make --no-print-directory .venv/.installed
}

release_build() {
  # One architecture of GPUs is enough to compile for: newer ones take its code, too.
  cmake --preset release -DCMAKE_CUDA_ARCHITECTURES=80 -Wno-dev --log-level=WARNING
  cmake --build --preset release -- --quiet
}

python_tests() {
  .venv/bin/python -m pytest -q
  .venv/bin/python -m pytest -q tests/mistakes
}

conformance() {
  build/release/tests/conformance
  .venv/bin/python tools/onnx_node_cases.py --output build/onnx
  build/release/tests/conformance --data build/onnx --not-run tests/conformance/not_run_onnx.txt
}

pretrained() {
  .venv/bin/python tests/models/compare.py --models build/models --chairlift build/release/bin/chairlift
}

written_by_onnxruntime() {
  local script
  for script in contrib_ops function_graphs ort_writers; do
    .venv/bin/python tests/models/$script.py --chairlift build/release/bin/chairlift
  done
}

clients() {
  make --no-print-directory build/clients/.installed
  build/clients/bin/python tests/clients/run.py --models build/models --chairlift build/release/bin/chairlift
}

documentation() {
  make --no-print-directory docs .venv/.pages
  build/docs/bin/python -m pytest -q tests/docs
}

address_sanitizer_build() {
  cmake --preset asan -Wno-dev --log-level=WARNING
  cmake --build --preset asan -- --quiet
}

thread_sanitizer_build() {
  cmake --preset tsan -Wno-dev --log-level=WARNING
  cmake --build --preset tsan --target device_test engine_test server_test -- --quiet
}

step "packages" prepare
step "format, layers and clang-tidy on changed files" tools/lint.sh --changed
step "release build" release_build
step "release tests" ctest --preset release -j "$(nproc)" --timeout 300
step "the Python package" make --no-print-directory python
step "the models of the examples" .venv/bin/python examples/build_models.py --output build/models
step "the Python package's tests" python_tests
step "its wheel on a bare Debian" make --no-print-directory test-wheel
step "the Debian package and the container image" make --no-print-directory test-packages
step "ONNX conformance" conformance
step "pretrained models against ONNX Runtime" pretrained
step "what ONNX Runtime's optimiser and quantisers write" written_by_onnxruntime
step "networks in stages" .venv/bin/python tests/models/staged_networks.py --chairlift build/release/bin/chairlift
step "other people's clients over HTTP" clients
step "the documentation: its site, links, code and commands" documentation
step "AddressSanitizer, UBSan and the fuzz targets, with clang: build" address_sanitizer_build
step "AddressSanitizer, UBSan and fuzzing: tests" ctest --preset asan -j "$(nproc)" --timeout 1200
step "ThreadSanitizer: build" thread_sanitizer_build
step "ThreadSanitizer: tests" ctest --preset tsan -j "$(nproc)" --timeout 1200 -R '^(device|engine|engine_2|server)$'

python3 - "$times" <<'END'
import json, sys
steps = sorted((line.rstrip("\n").split("\t") for line in open(sys.argv[1])), key=lambda step: int(step[0]))
with open("build/test_times.json", "w") as file:
    json.dump([{"step": name, "start": int(start), "seconds": int(took)} for start, took, name in steps], file, indent=1)
print("\nStart and seconds of each step:")
for start, took, name in steps:
    print(f"{start:>6} {took:>5}  {name}")
END
printf '\n== done (%s s)\n' "$SECONDS"
