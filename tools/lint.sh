#!/usr/bin/env bash
# clang-format on every source, layers, and clang-tidy on those named (or on all that differ from REV, or on all).
#   tools/lint.sh [--since REV | FILE ...]
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(git ls-files '*.cc' '*.h')
clang-format --dry-run --Werror "${sources[@]}"
echo "clang-format: ${#sources[@]} files"
python3 tools/check_layers.py
[ -f build/release/compile_commands.json ] || cmake --preset release >/dev/null
if [ "${1:-}" = --since ]; then
  mapfile -t tidy < <(git diff --name-only --diff-filter=d "$2" -- 'src/*.cc')
elif [ $# -gt 0 ]; then
  tidy=("$@")
else
  mapfile -t tidy < <(git ls-files 'src/*.cc')
fi
[ ${#tidy[@]} -eq 0 ] || printf '%s\n' "${tidy[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy -p build/release --quiet
echo "clang-tidy: ${#tidy[@]} files"
