#!/bin/sh
# Makes a checkout ready to run: system packages, then .make-venv, then the install.
#
#     setup.sh [demo|docs|all]
#
# "demo" and "docs" leave out what only the tests, the checks and the analysis need.
#
# Every make target that needs the environment calls this first, so a run that has nothing to do
# only compares one checksum.  The stamp is written last: whatever interrupts the work, the next run
# does it again, and a .make-venv without a stamp is made anew.  .make-venv belongs to this script.
#
# Where packages come from, and by which proxy and certificates, is pip's and apt's own configuration.
set -eu
cd "$(dirname "$0")/.."

venv=.make-venv
profile=${1:-all}
case $profile in # a richer profile is enough, too
    demo) extras='' enough='demo docs all' ;;
    docs) extras='[docs]' enough='docs all' ;;
    all) extras='[dev,docs,fast,kerberos,metrics,oauth,plots,spark]' enough=all ;;
    *) echo "usage: $0 [demo|docs|all]" >&2; exit 2 ;;
esac
# The path is part of the checksum: a virtual environment does not survive being moved or copied.
checksum=$( { cat pyproject.toml constraints.txt scripts/setup.sh scripts/apt.sh; pwd; } | cksum | cut -d ' ' -f 1)

say() { echo "setup: $*" >&2; }
fail() { say "$@"; exit 1; }
is_ready() {
    for each in $enough; do
        if [ -e "$venv/.ready-$each-$checksum" ] && [ -x "$venv/bin/python" ]; then return 0; fi
    done
    return 1
}

is_ready && exit 0
[ ! -L "$venv" ] || fail "$venv is a link; remove it, and a virtual environment of its own is made here"

# Two of these at once in one checkout (make test beside make check) would trip over each other.
if command -v flock >/dev/null; then
    exec 9<scripts/setup.sh
    flock -n 9 || { say "another setup is running here, waiting for it"; flock 9; }
    is_ready && exit 0
fi

# What the caller's shell has for other environments must not lead Python or pip out of this one.
unset PYTHONHOME PYTHONPATH PIP_PREFIX PIP_PYTHON PIP_ROOT PIP_TARGET
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1
# As root pip fails on a cache that it cannot write.
[ -w "${XDG_CACHE_HOME:-${HOME:-/}}" ] || export PIP_NO_CACHE_DIR=1

# --- Python -------------------------------------------------------------------------------------

. scripts/apt.sh

# With the headers to compile proton, and with pip for the virtual environment: distributions package both apart.
complete='import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(sys.version_info < (3, 11) or not os.path.exists(header))'
runs() { # PYTHON CODE: within 10 seconds, for a version manager leaves commands that fail or hang on PATH
    timeout -s KILL 10 "$1" -c "$2" </dev/null >/dev/null 2>&1
}
find_python() {
    for python in python3.13 python3.12 python3.11 python3 /usr/bin/python3; do
        if runs "$python" "$complete"; then return 0; fi
    done
    return 1
}
need_python() { # the packages of the newest Python that the distribution has
    for package in python3.13 python3.12 python3.11 python3; do
        if [ -x "/usr/bin/$package" ] || apt-cache show "$package" >/dev/null 2>&1; then break; fi
    done
    missing="$missing $package $package-dev $package-venv"
}
find_python || need_python

# --- Other system packages, by their Debian and Ubuntu names ------------------------------------

library() { # proton's build asks pkg-config alone; before that is installed the header must do
    if command -v pkg-config; then pkg-config --exists "$1"; else [ -e "/usr/include/$2" ]; fi
}
any_file() { for file; do if [ -e "$file" ]; then return 0; fi; done; return 1; }

# proton is built from source, with TLS and SASL only if it finds their headers
need gcc command -v gcc
need libc6-dev any_file /usr/include/stdio.h /usr/include/*/stdio.h
need pkg-config command -v pkg-config
need libssl-dev library openssl openssl/ssl.h
need libsasl2-dev library libsasl2 sasl/sasl.h
if [ "$profile" = all ]; then
    # servers and clients of proton on Cyrus SASL judge our own
    need libsasl2-modules any_file /usr/lib/*/sasl2/libscram.so /usr/lib*/sasl2/libscram.so
    need sasl2-bin command -v saslpasswd2
    # Kerberos: the library gssapi is built from source, and tested with a KDC
    need libkrb5-dev any_file /usr/include/gssapi/gssapi.h
    need libsasl2-modules-gssapi-mit any_file /usr/lib/*/sasl2/libgssapiv2.so /usr/lib*/sasl2/libgssapiv2.so
    need krb5-kdc command -v krb5kdc
    need krb5-admin-server command -v kadmin.local
    need krb5-user command -v kinit
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

if [ -n "$missing" ]; then
    prepare_apt "" "; to build proton, RPM systems call it gcc, glibc-devel, \
pkgconf-pkg-config, openssl-devel, cyrus-sasl-devel, cyrus-sasl-scram and python3-devel"
    # shellcheck disable=SC2086  # packages are words
    apt_install $missing || fail "apt-get could not install$missing; the lines above say why." \
        "When that is mended (the network, apt's sources, room on the disk), run make again."
    find_python || fail "no Python 3.11 or newer that has venv, ensurepip and Python.h" \
        "(python3 is: $(python3 --version 2>&1 || true)); install one, and put it on PATH"
fi

# --- Virtual environment ------------------------------------------------------------------------

# A stamp of this path, even of older files, means that the last setup here ended well.
if ! cat "$venv"/.ready-* 2>/dev/null | grep -qxF "$(pwd)" || ! runs "$venv/bin/python" "$complete"; then
    rm -f "$venv"/.ready-*
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv" || fail "$python cannot make a virtual environment in $(pwd)"
fi
rm -f "$venv"/.ready-*

# --- Install ------------------------------------------------------------------------------------

install() {
    "$venv/bin/python" -m pip install -q -c constraints.txt "$@" || fail "pip could not install the packages;" \
        "the lines above say why.  Without a network, or behind a proxy, pip needs an index that it reaches" \
        "(\"pip config list\", PIP_INDEX_URL, PIP_CERT).  When that is mended, run make again."
}
proton_is_whole() {
    "$venv/bin/python" -c 'import sys, proton; sys.exit(not (proton.SSL.present() and proton.SASL.extended()))'
}

say "installing haclient and its dependencies (proton is compiled: a minute or two the first time)"
install -e ".$extras"
if ! proton_is_whole; then
    say "pip's cached proton cannot be used or was built without TLS or SASL, building it again"
    install --force-reinstall --no-deps --no-cache-dir --no-binary python-qpid-proton python-qpid-proton
    proton_is_whole || fail "proton cannot be imported, or has no TLS or no SASL:" \
        "does pkg-config find openssl (libssl-dev) and libsasl2 (libsasl2-dev)?"
fi

pwd >"$venv/.ready-$profile-$checksum"
say "ready"
