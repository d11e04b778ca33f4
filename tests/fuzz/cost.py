"""A limit of time and memory for what two inputs cost together.

The session's own limits are for one input; what two peers give may cost its product, of which each is small.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fuzz.target import Defect


@contextmanager
def at_most(*, seconds: float, megabytes: float, what: str) -> Iterator[None]:
    """Run a block that takes so much processor time at most, and so much memory of Python's at once.

    :raises Defect: when it takes more; says what does.
    """
    tracemalloc.start()
    began = time.process_time()
    try:
        yield
        took, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if took > seconds:
        raise Defect(f"{what}: {took:.2f} s of processor time, and {seconds} s is the most")
    if peak > megabytes * 2**20:
        raise Defect(f"{what}: {peak / 2**20:.1f} MB, and {megabytes} MB is the most")
