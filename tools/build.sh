#!/usr/bin/env bash
# Builds targets of a CMake preset. On a terminal a bar shows the progress, else a line every 15 s. Messages of the
# compilers are shown in full.
#   tools/build.sh PRESET JOBS TARGET ...
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
preset=$1 jobs=$2
shift 2

show() {
  local line done total told=0
  # A build that was interrupted leaves ninja's log without its end: ninja says so, and goes on without it.
  local cut='ninja: warning: premature end of file; recovering'
  while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
      if [ -t 1 ]; then
        printf '\r\e[Kbuild [%-40s] %d/%d, %d s' "$(printf '%*s' $((40 * done / total)) '' | tr ' ' '#')" "$done" "$total" "$SECONDS"
        [ "$done" -lt "$total" ] || echo
      elif [ $((SECONDS - told)) -ge 15 ] || [ "$done" -eq "$total" ]; then
        told=$SECONDS
        printf 'build: %d of %d steps, %d s\n' "$done" "$total" "$SECONDS"
      fi
    elif [[ -n $line && $line != ninja:\ no\ work\ to\ do. && $line != ninja:\ Entering* && $line != "$cut" ]]; then
      [ ! -t 1 ] || printf '\r\e[K'
      printf '%s\n' "$line"
    fi
  done
}

NINJA_STATUS='[%f/%t] ' cmake --build --preset "$preset" -j "$jobs" --target "$@" 2>&1 | show
