"""A program that ends without closing its connections exits normally."""

from __future__ import annotations

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
