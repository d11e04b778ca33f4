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

may_sudo() { # without a question, or with one where somebody can answer it
    command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo true; }; }
}

prepare_apt() { # [LINE [NAMES]]: or end, with the LINE to run as root, and with their NAMES on other systems
    if ! command -v apt-get >/dev/null; then
        say "please install what Debian calls$missing${2:-}"
        exit 1
    fi
    say "system packages to install:$missing"
    if [ "$(id -u)" = 0 ]; then
        as_root='env'
    elif may_sudo; then
        as_root='sudo env'
    else
        say "run this line, then make again:"
        echo "${1:-sudo apt-get install -y --no-install-recommends$missing}" >&2
        exit 1
    fi
    # An update that fails for one foreign source must not stop the install from the others.
    apt_get update || say "apt-get update failed, going on"
    # An earlier run may have been interrupted.
    run_as_root dpkg --configure -a >/dev/null 2>&1 || true
}

apt_install() { # PACKAGE...; after an interrupted run also what those that are there still need (-f)
    apt_get install -f -y --no-install-recommends --no-remove "$@"
}

apt_get() { # waits for an apt that is already running; of its hundreds of lines the last, and only if it fails
    lines=$(run_as_root apt-get -q -o DPkg::Lock::Timeout=600 "$@" 2>&1) ||
        { echo "$lines" | tail -n 12 >&2; return 1; }
}

run_as_root() { # sudo drops the proxy; nothing that apt starts may hold on to a lock of the script (9)
    $as_root DEBIAN_FRONTEND=noninteractive http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" \
        "$@" </dev/null 9<&-
}
