#!/bin/sh
# Makes a checkout ready to run: system packages, then .venv, then the install.  `setup.sh demo` does so for the
# demonstration alone, and leaves out what the tests, the checks and the analysis need.
#
# Every make target that needs the environment calls this first, so a run that has nothing to do
# only compares one checksum.  The stamp is written last: whatever interrupts the work, the next run
# does it again, and a .venv without a stamp is made anew.  .venv belongs to this script.
#
# Where packages come from is pip's and apt's own configuration; nothing here says so.
set -eu
cd "$(dirname "$0")/.."

# The path is part of the checksum: a virtual environment does not survive being moved or copied.
checksum=$( { cat pyproject.toml constraints.txt scripts/setup.sh scripts/apt.sh; pwd; } | cksum | cut -d ' ' -f 1)
all=.venv/.ready-$checksum
case ${1:-} in
    demo) stamp=.venv/.demo-$checksum extras= ;;
    '') stamp=$all extras='[dev,docs,fast,metrics,plots,spark]' ;;
    *) echo "usage: $0 [demo]" >&2; exit 2 ;;
esac

is_ready() { { [ -e "$stamp" ] || [ -e "$all" ]; } && [ -x .venv/bin/python ]; }
say() { echo "setup: $*" >&2; }
fail() { say "$@"; exit 1; }

is_ready && exit 0
[ ! -L .venv ] || fail ".venv is a link; remove it, and a virtual environment of its own is made here"

# Two of these at once in one checkout (make test beside make check) would trip over each other.
if command -v flock >/dev/null; then
    exec 9<scripts/setup.sh
    flock -n 9 || { say "another setup is running here, waiting for it"; flock 9; }
    is_ready && exit 0
fi

# --- Python -------------------------------------------------------------------------------------

supported='import sys; sys.exit(sys.version_info < (3, 11))'
python=
for candidate in python3.13 python3.12 python3.11 python3; do
    # Run it: a version manager leaves commands on PATH for versions that are switched off.
    if "$candidate" -c "$supported" 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || fail "no Python 3.11 or newer on PATH (found: $(python3 --version 2>&1 || true))"

# --- System packages, by their Debian and Ubuntu names ------------------------------------------

. scripts/apt.sh
library() { # proton's build asks pkg-config alone; before that is installed the header must do
    if command -v pkg-config; then pkg-config --exists "$1"; else [ -e "/usr/include/$2" ]; fi
}
any_file() { for file; do if [ -e "$file" ]; then return 0; fi; done; return 1; }
python_header='import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'

# proton is built from source, with TLS and SASL only if it finds their headers
need gcc command -v gcc
need libc6-dev any_file /usr/include/stdio.h /usr/include/*/stdio.h
need pkg-config command -v pkg-config
need libssl-dev library openssl openssl/ssl.h
need libsasl2-dev library libsasl2 sasl/sasl.h
# SASL mechanisms, and the user database of the reference broker
need libsasl2-modules any_file /usr/lib/*/sasl2/libscram.so /usr/lib*/sasl2/libscram.so
need sasl2-bin command -v saslpasswd2
if [ -n "$extras" ]; then
    # the tests move addresses and ask a real DNS server
    need dnsmasq-base command -v dnsmasq
    need iproute2 command -v ip
    # Spark and ZooKeeper are Java
    need default-jre-headless command -v java
    # and keep the record of a pair in a real ZooKeeper
    need zookeeper any_file /usr/share/java/zookeeper.jar
    # and try the resource agents as their managers would
    need resource-agents command -v ocf-tester
    need libxml2-utils command -v xmllint
    need shellcheck command -v shellcheck
fi
# a distribution's Python comes without its headers and without ensurepip
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
need "python$version-dev" "$python" -c "$python_header"
need "python$version-venv" "$python" -c 'import ensurepip, venv'

if [ -n "$missing" ]; then
    prepare_apt "" "; to build proton, RPM systems call it gcc, glibc-devel, \
pkgconf-pkg-config, openssl-devel, cyrus-sasl-devel, cyrus-sasl-scram and python3-devel"
    # shellcheck disable=SC2086  # packages are words
    apt_install $missing
fi

# --- Virtual environment ------------------------------------------------------------------------

# A stamp of this path, even of older files, means that the last setup here ended well.
reusable=
if cat .venv/.ready-* .venv/.demo-* 2>/dev/null | grep -qxF "$(pwd)" && .venv/bin/python -c "$supported" 2>/dev/null; then reusable=yes; fi
rm -f .venv/.ready-* .venv/.demo-*
if [ -z "$reusable" ]; then
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

# --- Install ------------------------------------------------------------------------------------

export PIP_DISABLE_PIP_VERSION_CHECK=1
pip() { .venv/bin/python -m pip "$@"; }
proton_is_whole() {
    .venv/bin/python -c 'import sys, proton; sys.exit(not (proton.SSL.present() and proton.SASL.extended()))'
}

say "installing haclient and its dependencies (proton is compiled: a minute or two the first time)"
pip install -q -c constraints.txt -e ".$extras"
if ! proton_is_whole; then
    say "pip's cached proton cannot be used or was built without TLS or SASL, building it again"
    pip install -q -c constraints.txt --force-reinstall --no-deps --no-cache-dir \
        --no-binary python-qpid-proton python-qpid-proton
    proton_is_whole || fail "proton cannot be imported, or has no TLS or no SASL:" \
        "does pkg-config find openssl (libssl-dev) and libsasl2 (libsasl2-dev)?"
fi

pwd >"$stamp"
say "ready"
