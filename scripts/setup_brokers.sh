#!/bin/sh
# Installs what tests/brokers runs: Artemis and Broker-J from Maven Central, RabbitMQ from the distribution.
#
# Both need Java 17.  System packages come with apt where it may, otherwise the one line to run is printed.  The
# brokers are unpacked in .brokers, which belongs to this script; a run that has nothing to do looks for two
# folders.  A broker that cannot be had does not keep the others away: its rows are skipped, with the reason.
set -eu
cd "$(dirname "$0")/.."
say() { echo "setup_brokers: $*" >&2; }
. scripts/apt.sh

artemis=2.56.0
broker_j=10.1.0
cache=.brokers

need openjdk-17-jre-headless command -v java
need maven command -v mvn
need rabbitmq-server [ -e /usr/lib/rabbitmq/bin/rabbitmq-server ]
need util-linux command -v setpriv
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
    if mvn -q -B dependency:copy "-Dartifact=$2:tar.gz:bin" "-DoutputDirectory=$PWD/$cache/new" >&2 &&
        tar -xzf "$cache/new"/*.tar.gz -C "$cache/new" && mkdir -p "$cache/$(dirname "$1")"; then
        mv "$cache/new/$1" "$cache/$1"
    else
        say "$2 cannot be had from Maven, its tests will be skipped"
    fi
    rm -rf "$cache/new"
}

unpack "apache-artemis-$artemis" "org.apache.artemis:apache-artemis:$artemis"
unpack "qpid-broker/$broker_j" "org.apache.qpid:apache-qpid-broker-j:$broker_j"
