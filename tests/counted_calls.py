"""Counts calls: a cost that no other work on the machine changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Calls:
    """The functions of Python and C that were called.

    :ivar number: how many.
    """

    def __init__(self) -> None:
        self.number = 0

    def count(self, _frame: object, event: str, _argument: object) -> None:
        """Take an event of the interpreter's profiler."""
        self.number += event in {"call", "c_call"}


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count the calls of this thread in the body."""
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls.count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
