# shellcheck shell=sh
# Sourced by the set-up scripts: finds out which system packages are missing, by their Debian and Ubuntu names,
# and installs them with apt where it may.  Whoever sources it has say().

# Daemons and administration tools live in sbin, which is not on everybody's PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
missing=
as_root=

need() { # PACKAGE CHECK...: add the package unless the check succeeds
    package=$1; shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

prepare_apt() { # [LINE [NAMES]]: or end, with the LINE to run as root, and with their NAMES on other systems
    if ! command -v apt-get >/dev/null; then
        say "please install what Debian calls$missing${2:-}"
        exit 1
    elif [ "$(id -u)" = 0 ]; then
        as_root='env'
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root='sudo -n env'
    else
        say "system packages are missing; run this line, then make again:"
        echo "${1:-sudo apt-get install -y --no-install-recommends$missing}" >&2
        exit 1
    fi
    say "installing$missing"
    # An update that fails for one foreign source must not stop the install from the others.
    # Nothing that apt starts may hold on to a lock of the script (9).
    $as_root DEBIAN_FRONTEND=noninteractive apt-get update -qq 9<&- || say "apt-get update failed, going on"
}

apt_install() { # PACKAGE...
    $as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" 9<&- >&2
}
