"""Callers with one deliberate defect each: ``python -m tests.hostile.callers.planted DEFECT URL SEED
SECONDS``.

A round must find the defect. The callers connect and send nothing, which suffices to start a round.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import time
from collections.abc import Callable

from tests.hostile.rounds import GROWTH


def _report(*defects: str) -> None:
    sys.stdout.write(json.dumps({"ends": {"call: done": 1}, "defects": defects}) + "\n")
    sys.stdout.flush()


def spins(seconds: float) -> None:
    """Use this many seconds of processor time, however long that takes."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    _report()


def grows(seconds: float) -> None:
    """Allocate more than the bound."""
    kept = bytearray(GROWTH + 8 * 1024 * 1024)
    kept[::4096] = b"x" * len(kept[::4096])
    time.sleep(seconds)
    _report()


def hangs(_seconds: float) -> None:
    """Never end, and ignore a request to end."""
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    signal.pause()


def raises(_seconds: float) -> None:
    """Exit with a traceback."""
    raise KeyError("inside")


def reports(_seconds: float) -> None:
    """Report the error of a call."""
    _report("send ended with KeyError")


def dies(_seconds: float) -> None:
    """Exit by a signal, as after a segmentation fault."""
    signal.raise_signal(signal.SIGSEGV)


def behaves(seconds: float) -> None:
    """Wait, with almost no processor time."""
    time.sleep(seconds)
    _report()


DEFECTS: dict[str, Callable[[float], None]] = {
    act.__name__: act for act in (spins, grows, hangs, raises, reports, dies, behaves)
}


def main(defect: str, url: str, _seed: str, seconds: str) -> None:
    """Connect, and run the defect."""
    found = re.match(r"amqp://([\d.]+):(\d+)", url)
    assert found is not None
    with socket.create_connection((found[1], int(found[2]))):
        time.sleep(0.3)  # a round observes a caller ten times a second
        DEFECTS[defect](float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
