#!/usr/bin/env bash
# Builds the Debian packages chairlift and chairlift-dev for Debian 12 on amd64, from build/release into build/deb.
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
tools/install_packages.sh debhelper dpkg-dev fakeroot
version=$(build/release/bin/chairlift --version | awk 'NR == 1 {print $2}')
folder=build/deb/chairlift-$version
rm -rf build/deb && mkdir -p "$folder"
cp -r packaging/debian "$folder/debian"
printf 'chairlift (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- The Chairlift authors <maintainers@chairlift.invalid>  %s\n' \
  "$version" "$(git log -1 --format=%cD 2>/dev/null || date -R)" > "$folder/debian/changelog"
export CHAIRLIFT_SOURCE=$PWD
(cd "$folder" && dpkg-buildpackage -b -us -uc) > build/deb/log 2>&1 || { tail -30 build/deb/log >&2; exit 1; }
ls build/deb/*.deb
