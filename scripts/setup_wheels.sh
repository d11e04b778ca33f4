#!/bin/sh
# Installs what tests/wheels makes bare Debians with.
set -eu
cd "$(dirname "$0")/.."
say() { echo "setup_wheels: $*" >&2; }
. scripts/apt.sh

need debootstrap command -v debootstrap
need util-linux command -v unshare
if [ -n "$missing" ]; then
    prepare_apt ""
    # shellcheck disable=SC2086  # packages are words
    apt_install $missing || { say "apt-get could not install$missing"; exit 1; }
fi
