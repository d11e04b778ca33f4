#!/bin/sh
# Installs what tests/pacemaker needs: Corosync, Pacemaker, its two shells, and tools for namespaces.
#
# System packages come with apt where it may, otherwise the one line to run is printed.  A run that has
# nothing to do looks for a few files.  No service of the machine is started or used: the tests start their
# own daemons, in namespaces.
set -eu
PATH=$PATH:/usr/sbin:/sbin
say() { echo "setup_pacemaker: $*" >&2; }

missing=
need() { # PACKAGE CHECK...: add the package unless the check succeeds
    package=$1; shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
need corosync command -v corosync
need pacemaker command -v pacemakerd
need pacemaker-cli-utils command -v crm_mon
need crmsh command -v crm
need pcs command -v pcs
need resource-agents [ -e /usr/lib/ocf/resource.d/heartbeat/IPaddr2 ]
need iproute2 command -v ip
need util-linux command -v nsenter

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    say "please install what Debian calls$missing"
    exit 1
elif [ "$(id -u)" = 0 ]; then
    as_root='env'
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root='sudo -n env'
else
    say "system packages are missing; run this as root (it starts no service), then make again:"
    echo "scripts/setup_pacemaker.sh" >&2
    exit 1
fi

# Debian starts the services of what it installs, unless this file says otherwise (policy-rc.d(8)).
policy=/usr/sbin/policy-rc.d
made=
allow_services() { [ -z "$made" ] || $as_root rm -f "$policy"; }
trap allow_services EXIT
if [ ! -e "$policy" ]; then
    made=yes
    $as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
fi
say "installing$missing"
$as_root DEBIAN_FRONTEND=noninteractive apt-get update -qq || say "apt-get update failed, going on"
# shellcheck disable=SC2086  # packages are words
$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
say "ready"
