"""proton's C objects are released in the container's thread, wherever Python collects their wrappers.

Python finalizes an object in any thread.  A release of a C object while another thread is inside proton can
crash the process.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cproton_ffi import lib
from proton import Message, Timeout

from haclient.reactor.endpoints import released
from haclient.testing import in_process_broker
from haclient.utils import BlockingConnection


class _Releases:
    """The C functions of proton; notes the threads of releases."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)

    def pn_decref(self, impl: Any) -> None:
        self.threads.append(threading.get_ident())
        lib.pn_decref(impl)


def _drop(connection: BlockingConnection) -> None:
    sender, receiver = connection.create_sender("q"), connection.create_receiver("q", credit=3)
    sender.send(Message("one"))
    receiver.receive()
    receiver.accept()
    sender.close()
    receiver.close()


@pytest.mark.parametrize("count", [1, 20])
def test_objects_dropped_elsewhere_are_released_by_the_connections_thread(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    gc.collect()  # what earlier tests left
    releases = _Releases()
    monkeypatch.setattr(released, "lib", releases)
    with in_process_broker() as broker, ThreadPoolExecutor(1) as pool:
        connection = pool.submit(BlockingConnection, broker.url).result()
        user = pool.submit(threading.get_ident).result()
        for _ in range(count):
            kept = [pool.submit(connection.create_receiver, "q", name=name).result() for name in "abc"]
            pool.submit(lambda links: [link.close() for link in links], kept).result()
            pool.submit(_drop, connection).result()
            del kept  # by this thread, while the connection lives
        pool.submit(_drop, connection).result()
        pool.submit(connection.close).result()
        assert releases.threads
        assert set(releases.threads) <= {user, connection._background_loop._thread.ident}


def test_all_is_released_once_the_last_object_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[released.Released] = []

    class Noted(released.Released):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr("haclient.reactor.endpoints.binding.Released", Noted)
    with in_process_broker() as broker:
        connection = BlockingConnection(broker.url)
        sender = connection.create_sender("q")
        delivery = sender.send(Message("one"))
        connection.close()
        del connection, sender
        gc.collect()
        [counted] = made
        assert counted.count
        assert delivery.settled
        del delivery
        gc.collect()
        assert not counted.count


def test_sends_that_are_given_up_in_an_outage_leave_nothing_behind() -> None:
    with in_process_broker() as broker:
        connection = BlockingConnection(broker.url)
        sender = connection.create_sender("q")
        sender.send(Message("one"))
    binding = connection.conn._binding
    before = binding.released.count
    for number in range(10):
        with pytest.raises(Timeout):
            sender.send(Message(number), timeout=0.01)
    assert binding.released.count <= before + 2  # one for the call before
    connection.close()


HANDING_OVER = """
import queue, sys, threading
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, EventInjector
from haclient.reactor import Container
from haclient.testing import in_process_broker

TOTAL = int(sys.argv[1])

class Handler(MessagingHandler):
    def __init__(self, url):
        super().__init__(prefetch=50, auto_accept=False)
        self.url, self.sent, self.done = url, 0, 0
        self.injector, self.work, self.dropped = EventInjector(), queue.Queue(), queue.Queue()
        threading.Thread(target=self.answer, daemon=True).start()
        threading.Thread(target=self.drop, daemon=True).start()

    def answer(self):
        while True:
            self.injector.trigger(ApplicationEvent("worked", subject=self.work.get()))

    def drop(self):
        while True:
            self.dropped.get()  # the last reference

    def on_start(self, event):
        event.container.selectable(self.injector)
        self.connection = event.container.connect(self.url)
        event.container.create_sender(self.connection, "q")
        event.container.create_receiver(self.connection, "q")

    def on_sendable(self, event):
        while event.sender.credit and self.sent < TOTAL:
            event.sender.send(Message(self.sent))
            self.sent += 1

    def on_message(self, event):
        self.work.put(event.delivery)

    def on_worked(self, event):
        self.accept(event.subject)
        self.dropped.put(event.subject)
        self.done += 1
        if self.done == TOTAL:
            self.connection.close()
            self.injector.close()

with in_process_broker() as broker:
    Container(Handler(broker.url)).run()
print("went on", flush=True)
"""

FORGETFUL = """
import gc, threading
from haclient.testing import in_process_broker
from haclient.utils import BlockingConnection
from proton import Message

def use(url):
    connection = BlockingConnection(url)
    sender = connection.create_sender("q")
    receiver = connection.create_receiver("q", credit=3)
    sender.send(Message("one"))
    receiver.receive()

for _ in range(5):
    with in_process_broker() as broker:
        thread = threading.Thread(target=use, args=(broker.url,))
        thread.start()
        thread.join()
        gc.collect()
print("went on")
"""


def _goes_on(program: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, *arguments],
        env={**os.environ, "MALLOC_PERTURB_": "165"},  # overwrite freed memory
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.slow
def test_a_connection_that_is_forgotten_is_collected_without_harm() -> None:
    """Garbage is freed in any order, and its tasks may end after proton's objects are freed."""
    _goes_on(FORGETFUL)


@pytest.mark.slow
def test_threads_may_drop_the_last_references_to_deliveries() -> None:
    _goes_on(HANDING_OVER, "5000")
