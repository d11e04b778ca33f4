"""A program that drops its connections without closing them goes on, and exits normally."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import os, sys
import haclient.reactor.endpoints.released as released
from cproton_ffi import lib
from haclient.testing import in_process_broker
from haclient.utils import BlockingConnection
from proton import Message

class Watched:
    def __getattr__(self, name, of=lib):
        return getattr(of, name)

    def pn_decref(self, impl, is_exiting=sys.is_finalizing, write=os.write, decref=lib.pn_decref):
        if is_exiting():
            write(2, b"freed at the exit ")
        decref(impl)

released.lib = Watched()
with in_process_broker() as broker:
    connection = BlockingConnection(broker.url)
    sender = connection.create_sender("q")
    receiver = connection.create_receiver("q", credit=10)
    for number in range(5):
        sender.send(Message(number))
    receiver.receive()
"""


def test_what_is_left_at_the_exit_is_left_to_the_system() -> None:
    """The background loop may still be inside proton."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


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


def test_a_connection_that_is_forgotten_is_collected_without_harm() -> None:
    """Garbage is freed in any order, and its tasks may end after proton's objects are freed."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", FORGETFUL],
        env={**os.environ, "MALLOC_PERTURB_": "165"},  # overwrite freed memory
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    assert "Exception ignored" not in done.stderr
