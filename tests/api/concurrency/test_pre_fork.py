"""Servers that fork workers (gunicorn, uWSGI): a factory made before the fork serves each worker."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import haclient
from haclient.errors import ConnectionClosed
from haclient.testing.threads import in_thread
from tests.peers import primary, url
from tests.peers.apis import API

ROOT = Path(__file__).parents[3]
WORKERS = """
import os, sys, haclient, threading

events = []
factory = haclient.ConnectionFactory(sys.argv[1], on_event=lambda event: events.append(type(event).__name__))
assert threading.active_count() == 1
workers = []
for number in range(2):
    worker = os.fork()
    if worker == 0:
        with factory:
            with factory.connect(timeout=20) as connection, connection.create_sender("q") as sender:
                sender.send(haclient.Message(body=f"worker {number}"), timeout=20)
            sys.stdout.write(factory.client_id + "\\n")  # one write: print makes two without a buffer
        assert events[-1] == "Closed", events
        sys.exit(0)
    workers.append(worker)
codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
with factory, factory.connect(timeout=20) as connection:
    connection.create_sender("q").send(haclient.Message(body="parent"), timeout=20)
    print(factory.client_id)
sys.exit(max(codes))
"""
CONNECTED_ALREADY = """
import gc, os, sys, warnings, haclient

# The subject of this program; Python 3.12 and newer warn of it.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
factory = haclient.ConnectionFactory(sys.argv[1])
connection = factory.connect(timeout=20)
sender = connection.create_sender("q")
worker = os.fork()
if worker == 0:
    create = lambda: connection.create_sender("q")
    for call in (factory.connect, lambda: sender.send(haclient.Message()), create, factory.close):
        try:
            call()
        except haclient.errors.WrongThread as error:
            print(error)
    del call, create, connection, sender, factory
    gc.collect()
    sys.exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
sender.send(haclient.Message(body="the parent goes on"), timeout=20)
factory.close()
sys.exit(code)
"""


def run(program: str, where: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-W", "always::ResourceWarning", "-c", program, where]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_a_factory_made_before_the_fork_connects_in_each_child_and_in_the_parent() -> None:
    with in_thread(primary()) as peer:
        ended = run(WORKERS, url(peer))
        assert (ended.returncode, ended.stderr) == (0, "")
        assert sorted(peer.bodies) == ["parent", "worker 0", "worker 1"]
    client_ids = ended.stdout.split()
    assert len(set(client_ids)) == 3


def test_a_factory_that_connected_before_the_fork_says_so_in_the_child() -> None:
    with in_thread(primary()) as peer:
        ended = run(CONNECTED_ALREADY, url(peer))
        assert (ended.returncode, ended.stderr) == (0, "")
        assert peer.bodies == ["the parent goes on"]
    text = "this factory connected in the parent process: make a new one after a fork"
    assert ended.stdout.splitlines() == [text] * 4


def test_a_factory_that_is_not_used_has_no_thread() -> None:
    before = threading.active_count()
    factory = haclient.ConnectionFactory("amqp://127.0.0.1")
    with factory:
        assert threading.active_count() == before
    assert threading.active_count() == before
    with pytest.raises(ConnectionClosed):
        factory.connect()


async def test_a_factory_that_never_connected_closes(api: API) -> None:
    factory = await api.factory("amqp://127.0.0.1")
    await factory.close()
    await factory.close()
    with pytest.raises(ConnectionClosed):
        await factory.connect()
