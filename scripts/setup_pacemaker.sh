#!/bin/sh
# Installs what tests/pacemaker needs: Corosync, Pacemaker, its two shells, and tools for namespaces.
#
# System packages come with apt where it may, otherwise the one line to run is printed.  A run that has
# nothing to do looks for a few files.  No service of the machine is started or used: the tests start their
# own daemons, in namespaces.
set -eu
cd "$(dirname "$0")/.."
say() { echo "setup_pacemaker: $*" >&2; }
. scripts/apt.sh

need corosync command -v corosync
need pacemaker command -v pacemakerd
need pacemaker-cli-utils command -v crm_mon
need crmsh command -v crm
need pcs command -v pcs
need resource-agents [ -e /usr/lib/ocf/resource.d/heartbeat/IPaddr2 ]
need iproute2 command -v ip
need util-linux command -v nsenter

[ -n "$missing" ] || exit 0
# By itself the line of apt would start services.
prepare_apt "sudo scripts/setup_pacemaker.sh"

# Debian starts the services of what it installs, unless this file says otherwise (policy-rc.d(8)).
policy=/usr/sbin/policy-rc.d
made=
allow_services() { [ -z "$made" ] || $as_root rm -f "$policy"; }
trap allow_services EXIT
if [ ! -e "$policy" ]; then
    made=yes
    $as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
fi
# shellcheck disable=SC2086  # packages are words
apt_install $missing
say "ready"
