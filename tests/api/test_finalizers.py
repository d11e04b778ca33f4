"""proton's links are released in the thread of the connection, wherever the application drops its objects.

Otherwise proton's reference counts would change in two threads at once, which can crash the process.
"""

from __future__ import annotations

import gc
import threading
from collections import defaultdict

import proton
import pytest
from proton._wrapper import Wrapper

from haclient import Message
from haclient.blocking import connect
from haclient.testing import in_process_broker


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[type, set[int]]:
    """The threads that finalize proton's objects, by class."""
    found: dict[type, set[int]] = defaultdict(set)
    finalize = Wrapper.__del__

    def noted(self: Wrapper) -> None:
        found[type(self)].add(threading.get_ident())
        finalize(self)

    monkeypatch.setattr(Wrapper, "__del__", noted)
    return found


@pytest.mark.parametrize("closes", [True, False])
def test_links_are_released_by_the_connections_thread(threads: dict[type, set[int]], *, closes: bool) -> None:
    gc.disable()  # the loop's thread might collect them, by chance
    try:
        with in_process_broker() as broker, connect(broker.url) as connection:
            for queue in "abcdefgh":
                sender, receiver = connection.create_sender(queue), connection.create_receiver(queue)
                sender.send(Message("x"))
                receiver.receive().accept()
                if closes:
                    sender.close()
                    receiver.close()
                del sender, receiver
                gc.collect()
            connection.close()
            del connection
            gc.collect()
    finally:
        gc.enable()
    assert threads[proton.Sender]
    assert threads[proton.Receiver]
    assert threading.get_ident() not in threads[proton.Sender] | threads[proton.Receiver]
