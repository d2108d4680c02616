#!/usr/bin/env bash
# Installs the Debian packages of tools/packages.txt (and any named as arguments) that are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t wanted < <(grep -v '^#' tools/packages.txt; printf '%s\n' "$@")
missing=()
for package in "${wanted[@]}"; do
  [ -n "$package" ] || continue
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "these Debian packages are missing and need root: ${missing[*]}" >&2; exit 1; }
  sudo=sudo
fi
echo "Installing ${#missing[@]} Debian packages: ${missing[*]}"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
