"""Waiting, for tests of blocking calls, whose peers live on a separate thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.dropin.recorder import PATIENCE
from tests.peers.primary import Primary


def on_its_thread(peer: Primary, call: Callable[..., Any], *arguments: Any) -> None:
    """Run a peer's call on its thread, and wait for its end."""
    done = threading.Event()

    def do() -> None:
        call(*arguments)
        done.set()

    next(iter(peer.engines))._loop.call_soon_threadsafe(do)
    assert done.wait(PATIENCE)


def wait_until(true: Callable[[], Any]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)
