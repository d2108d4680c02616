#!/usr/bin/env bash
# Checks the prose of pages and comments, and the format, names and layers of all sources. Then it runs clang-tidy on the
# sources named, on all, or on changed ones. Those differ from the merge base with main, or on main from the commit
# before the last. Of them the 16 with most changed lines are checked, for at most 5 minutes.
#   tools/lint.sh [--changed | FILE ...]
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
mapfile -t prose < <(git ls-files README.md '*/README.md' CONTRIBUTING.md src/engine/programs/process/messages.md 'docs/*.md' ':!docs/reference/command-line.md')
python3 tools/check_prose.py --quiet "${prose[@]}"
echo "prose: ${#prose[@]} pages"
mapfile -t commented < <(git ls-files '*.cc' '*.h' '*.cu' '*.cuh' '*.py')
python3 tools/check_comments.py "${commented[@]}"
mapfile -t sources < <(git ls-files '*.cc' '*.h' '*.cu' '*.cuh')
clang-format --dry-run --Werror "${sources[@]}"
echo "clang-format: ${#sources[@]} files"
python3 tools/check_layers.py
python3 tools/check_names.py

limit=0  # seconds; 0: none
if [ "${1:-}" = --changed ]; then
  limit=150
  base=$(git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || true)
  [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse --quiet --verify HEAD~1 || true)
  if [ -z "$base" ]; then
    echo "clang-tidy: no earlier commit to compare with"
    exit
  fi
  # A header is checked by the source of its name.
  mapfile -t tidy < <(git diff --numstat --diff-filter=d "$base" -- 'src/*.cc' 'src/*.h' | sort -rn | cut -f 3 |
    sed 's/\.h$/.cc/' | awk '!seen[$0]++' | while read -r file; do [ ! -f "$file" ] || echo "$file"; done)
  echo "clang-tidy: ${#tidy[@]} files changed since $(git rev-parse --short "$base")"
  tidy=("${tidy[@]:0:16}")
elif [ $# -gt 0 ]; then
  tidy=("$@")
else
  mapfile -t tidy < <(git ls-files 'src/*.cc')
fi
# The extension needs nanobind, which the tooling's environment has.
package=()
if [ -x .venv/bin/python ] && .venv/bin/python -m nanobind --cmake_dir >/dev/null 2>&1; then
  package=(-DCHAIRLIFT_PYTHON_PACKAGE=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python")
else
  mapfile -t tidy < <(printf '%s\n' "${tidy[@]}" | grep -vE '^(src/python/|$)' || true)
  echo "clang-tidy: without src/python, which needs \`make .venv/.installed\`"
fi
[ ${#tidy[@]} -gt 0 ] || exit 0
# Without precompiled headers, which clang could not read of another compiler; with the messages that are generated.
cmake -S . -B build/lint -G Ninja -DCMAKE_BUILD_TYPE=Release "${package[@]}" -Wno-dev --log-level=WARNING >/dev/null
cmake --build build/lint --target chairlift_triton_config -- --quiet
printf '%s\n' "${tidy[@]}"
# Findings count even where the time ends before the last file.
found=$(mktemp)
trap 'rm -f "$found"' EXIT
status=0
printf '%s\n' "${tidy[@]}" | FOUND=$found timeout "$limit" xargs -P "$(nproc)" -n 1 \
  sh -c 'clang-tidy -p build/lint --quiet "$0" || { [ $? -gt 128 ] || echo "$0" >>"$FOUND"; exit 1; }' || status=$?
if [ -s "$found" ]; then
  echo "clang-tidy: findings in $(sort "$found" | paste -sd ' ')"
  exit 1
elif [ $status = 124 ]; then
  echo "clang-tidy: stopped after $limit s"
else
  echo "clang-tidy: ${#tidy[@]} files"
  exit $status
fi
