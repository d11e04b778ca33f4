"""Limits time and memory for the combined cost of two inputs.

The session's own limits are for one input. Two small inputs from two peers may cost the product of
their sizes.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fuzz.target import Defect


@contextmanager
def at_most(*, seconds: float, megabytes: float, what: str) -> Iterator[None]:
    """Limit a block's processor time, and its peak of Python memory.

    :raises Defect: if the block exceeds a limit; the text names the block.
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
