"""``setup_rate`` reads a process's data from the kernel; here from this process."""

from __future__ import annotations

import os
import socket
import time

import pytest

from tests.brokers.setup_rate import listening, processor_seconds


def test_the_kernel_knows_who_listens_and_the_backlog() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=7) as server:
        port = server.getsockname()[1]
        found = listening(port)
        assert (found.pid, found.backlog) == (os.getpid(), 7)
    with pytest.raises(LookupError, match=f"port {port}"):
        listening(port)


def test_processor_time_is_that_of_the_kernel() -> None:
    assert processor_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=0.5)
