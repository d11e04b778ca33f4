"""Real gevent and eventlet: refused if they patch threads, and usable if they do not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from haclient.testing.threads import in_thread
from tests.examples.program import ROOT
from tests.interop.installed import GREENLETS, needs_eventlet, needs_gevent
from tests.peers import primary, url

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "gevent-later": "import haclient.blocking; from gevent import monkey; monkey.patch_all()",
    "gevent-select": "from gevent import monkey; monkey.patch_all(thread=False)",
    "eventlet": "import eventlet; eventlet.monkey_patch()",
}
REFUSED = """
import sys
import haclient
from haclient.errors import WrongThread
from haclient.utils import BlockingConnection
for connect in (haclient.connect, haclient.connect, BlockingConnection):
    try:
        connect(sys.argv[1], timeout=5)
    except WrongThread as error:
        print(error)
"""
GEVENT = """
from gevent import monkey; monkey.patch_all(thread=False, select=False)
import gevent
spawn, wait, sleep = gevent.spawn, gevent.Greenlet.get, gevent.sleep
def call(function, *arguments):
    return gevent.get_hub().threadpool.apply(function, arguments)
"""
EVENTLET = """
import eventlet; eventlet.monkey_patch(thread=False)
from eventlet import tpool
spawn, sleep, call = eventlet.spawn, eventlet.sleep, tpool.execute
def wait(greenlet):
    return greenlet.wait()
"""
SEND = """
import sys, threading
import haclient

def ticking():
    global ticks
    ticks = 0
    while True:
        ticks += 1
        sleep(0.001)

def send(number):
    connection = call(haclient.connect, sys.argv[1])
    sender = call(connection.create_sender, "orders")
    for each in range(20):
        call(sender.send, f"{number}.{each}")
    call(connection.close)

spawn(ticking)
for greenlet in [spawn(send, number) for number in range(5)]:
    wait(greenlet)
assert ticks > 5, ticks
"""


def run(program: str, where: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, where],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(GREENLETS)))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=needs_eventlet if name == "eventlet" else needs_gevent) for name in PATCHES],
)
def test_the_first_call_says_that_threads_are_replaced(name: str) -> None:
    with in_thread(primary()) as peer:
        said = run(PATCHES[name] + REFUSED, url(peer)).splitlines()
    library = name.partition("-")[0]
    assert len(said) == 3
    assert all(line.startswith(f"{library} has replaced threads") for line in said)


@pytest.mark.parametrize(
    "library",
    [pytest.param(GEVENT, marks=needs_gevent), pytest.param(EVENTLET, marks=needs_eventlet)],
    ids=["gevent", "eventlet"],
)
def test_greenlets_send_over_connections_of_their_own_and_others_go_on(library: str) -> None:
    with in_thread(primary()) as peer:
        run(library + SEND, url(peer))
        assert sorted(peer.bodies) == sorted(f"{number}.{each}" for number in range(5) for each in range(20))
