#!/bin/sh
# Installs what tests/interop speaks with: RabbitMQ, rhea, and further clients of our broker.  go-amqp is
# compiled where there is a Go toolchain.
#
# System packages come with apt where it may, otherwise the one line to run is printed.  What is not
# packaged goes to .interop (clients) and benchmarks/node (rhea, which a benchmark uses too).  The stamp
# is written last; a run that has nothing to do compares one checksum.  .interop belongs to this script.
#
# Where an init system runs, Debian's rabbitmq-server also starts a broker of its own; the tests
# start theirs, and have no need of it.
set -eu
cd "$(dirname "$0")/.."

go_amqp=github.com/Azure/go-amqp@v1.7.0
client=rabbitmq-amqp-python-client==1.0.1
greenlets='gevent>=26.9,<27 eventlet>=0.41,<0.42 greenlet>=3.5,<4 zope.event>=6.2,<7 zope.interface>=8.7,<9'
checksum=$( { cat scripts/setup_interop.sh benchmarks/node/package-lock.json; pwd; } | cksum | cut -d ' ' -f 1)
stamp=.interop/.ready-$checksum
say() { echo "setup_interop: $*" >&2; }

[ -e "$stamp" ] && [ -d benchmarks/node/node_modules/rhea ] && exit 0
[ -x .make-venv/bin/python ] || { say "make setup comes first"; exit 1; }

# --- System packages, by their Debian names -----------------------------------------------------

. scripts/apt.sh
need rabbitmq-server [ -e /usr/lib/rabbitmq/bin/rabbitmq-server ]
need nodejs command -v node
need npm command -v npm
need g++ command -v c++
need libqpid-proton-cpp12-dev [ -e /usr/include/proton/container.hpp ]
need libqpid-proton11-dev-examples [ -e /usr/share/proton/examples/cpp/simple_send.cpp ]
need python3-uamqp [ -d /usr/lib/python3/dist-packages/uamqp ]

if [ -n "$missing" ]; then
    prepare_apt ""
    # A package that this distribution lacks must not keep the others away: its tests are skipped.
    for package in $missing; do
        apt_install "$package" || say "$package cannot be installed, its tests will be skipped"
    done
fi

# --- Clients ------------------------------------------------------------------------------------

rm -rf .interop
mkdir -p .interop/bin
echo '*' >.interop/.gitignore

examples=/usr/share/proton/examples/cpp
if [ -d "$examples" ] && [ -e /usr/include/proton/container.hpp ]; then
    say "compiling proton's C++ examples"
    for name in simple_send simple_recv reconnect_client queue_browser selected_recv client server; do
        # Not by pkg-config: what the package's .pc file requires is in none of Debian's packages.
        c++ -o ".interop/bin/$name" "$examples/$name.cpp" -lqpid-proton-cpp -lpthread
    done
fi

if command -v go >/dev/null; then
    say "compiling go-amqp's own tests"
    bin=$PWD/.interop/bin
    module=$(GOPATH=$PWD/.interop/go go mod download -modcacherw -json "$go_amqp" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
    (cd "$module" && GOPATH=${bin%/bin}/go GOFLAGS=-modcacherw go test -c -o "$bin/go_amqp.test" .) ||
        say "go-amqp cannot be compiled, its tests will be skipped"
fi

if command -v npm >/dev/null; then
    say "installing rhea"
    (cd benchmarks/node && npm ci --no-audit --no-fund --silent)
fi

# Beside .make-venv, whose proton it uses: its other dependencies are newer than those of the analysis.
say "installing $client"
.make-venv/bin/python -m pip install -q --disable-pip-version-check --target .interop/python --no-deps \
    "$client" 'packaging>=26,<27' 'typing-extensions>=4.15,<5'
say "installing azure-servicebus"
.make-venv/bin/python -m pip install -q --disable-pip-version-check --target .interop/azure 'azure-servicebus>=7.15,<8'
say "installing gevent and eventlet"
# shellcheck disable=SC2086  # several words
.make-venv/bin/python -m pip install -q --disable-pip-version-check --target .interop/greenlets --no-deps $greenlets

pwd >"$stamp"
say "ready"
