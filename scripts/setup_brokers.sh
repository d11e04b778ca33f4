#!/bin/sh
# Installs what tests/brokers runs: Artemis, Broker-J, ActiveMQ Classic and Keycloak from Maven Central, RabbitMQ 3
# from the distribution, and RabbitMQ 4 in a Debian 13 of its own, a folder.
#
# With the argument "short" Keycloak is left out.  The first four need Java 17.  System packages come with apt where it
# may, otherwise the one line to run is printed.  The brokers are unpacked in .brokers, which belongs to this script; a
# run that has nothing to do looks for their folders.  A broker that cannot be had does not keep the others away: its
# rows are skipped, with the reason.
set -eu
cd "$(dirname "$0")/.."
say() { echo "setup_brokers: $*" >&2; }
. scripts/apt.sh

artemis=2.56.0
broker_j=10.1.0
activemq=5.17.6
keycloak=26.7.3
cache=.brokers

need openjdk-17-jre-headless command -v java
need maven command -v mvn
need rabbitmq-server [ -e /usr/lib/rabbitmq/bin/rabbitmq-server ]
need util-linux command -v setpriv
need debootstrap command -v debootstrap
if [ -n "$missing" ]; then
    prepare_apt ""
    for package in $missing; do
        apt_install "$package" || say "$package cannot be installed, its tests will be skipped"
    done
fi

mkdir -p "$cache"
echo '*' >"$cache/.gitignore"

unpack() { # FOLDER COORDINATES: unless the folder is there
    [ -d "$cache/$1" ] && return
    say "fetching $2"
    rm -rf "$cache/new" && mkdir "$cache/new"
    if mvn -q -B dependency:copy "-Dartifact=$2" "-DoutputDirectory=$PWD/$cache/new" >&2 &&
        tar -xzf "$cache/new"/*.tar.gz -C "$cache/new" && mkdir -p "$cache/$(dirname "$1")"; then
        mv "$cache/new/$1" "$cache/$1"
    else
        say "$2 cannot be had from Maven, its tests will be skipped"
    fi
    rm -rf "$cache/new"
}

unpack "apache-artemis-$artemis" "org.apache.artemis:apache-artemis:$artemis:tar.gz:bin"
unpack "qpid-broker/$broker_j" "org.apache.qpid:apache-qpid-broker-j:$broker_j:tar.gz:bin"
unpack "apache-activemq-$activemq" "org.apache.activemq:apache-activemq:$activemq:tar.gz:bin"
if [ "${1:-}" != short ] && [ ! -d "$cache/keycloak-$keycloak" ]; then # issues tokens; built once, it starts faster
    unpack "keycloak-$keycloak" "org.keycloak:keycloak-quarkus-dist:$keycloak:tar.gz"
    [ ! -d "$cache/keycloak-$keycloak" ] ||
        "$cache/keycloak-$keycloak/bin/kc.sh" build --db=dev-file --cache=local >"$cache/keycloak.log" 2>&1 ||
        say "Keycloak cannot be built, its tests will be skipped: $cache/keycloak.log"
fi

# --- RabbitMQ 4 ---------------------------------------------------------------------------------

debian_13() { # a Debian 13 with RabbitMQ 4 in $cache/debian-13, which programs enter by chroot
    new=$cache/debian-13.new
    mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\).*/\2/p' \
        /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
    rm -rf "$new"
    # debootstrap makes a node of every device, and mounts /proc.  Both end with its namespace.
    unshare --mount debootstrap --variant=minbase --include=rabbitmq-server,iproute2,procps trixie "$new" \
        ${mirror:+"$mirror"} >"$cache/debian-13.log" 2>&1 && mv "$new" "$cache/debian-13"
}
if [ ! -d "$cache/debian-13" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
        say "RabbitMQ 4 needs root and debootstrap, its tests will be skipped"
    else
        say "making a Debian 13 with RabbitMQ 4"
        debian_13 || say "RabbitMQ 4 cannot be had, its tests will be skipped: $cache/debian-13.log"
    fi
fi
