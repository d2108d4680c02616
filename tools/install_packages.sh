#!/usr/bin/env bash
# Installs the missing ones of the Debian packages in tools/packages.txt and of those named as arguments. If that is
# impossible, it prints one line that says what is needed, and fails.
#   tools/install_packages.sh [PACKAGE ...]
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
refuse() { echo "$*" >&2; exit 1; }
[ "$(uname -sm)" = "Linux x86_64" ] || refuse "this is $(uname -sm); Chairlift builds and runs on Linux x86_64"
command -v dpkg-query >/dev/null ||
  refuse "this is no Debian; use Debian 12, or a container of debian:12, or install what tools/packages.txt lists and build with cmake"
mapfile -t wanted < <(grep -v '^#' tools/packages.txt; printf '%s\n' "$@")
missing=()
for package in "${wanted[@]}"; do
  [ -n "$package" ] || continue
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || refuse "these Debian packages are missing and need root: ${missing[*]}"
  sudo=sudo
fi
echo "Installing ${#missing[@]} Debian packages: ${missing[*]}"
run() {
  local said
  said=$(DEBIAN_FRONTEND=noninteractive $sudo apt-get -qq "$@" 2>&1) ||
    refuse "apt-get $1 failed: $(grep -m 1 '^E:' <<< "$said" || tail -n 1 <<< "$said")"
}
run update
run install -y --no-install-recommends "${missing[@]}"
