"""Limits the time that newcomers get in one iteration of the event loop.

Rules
-----
* A slice is processor time: on a busy machine newcomers get the same part of what the member gets.
* Work that has begun is finished: a slice only says whether to begin with the next piece.
"""

from __future__ import annotations

import time

# Processor seconds: one or two steps of a handshake.  A message of an established connection takes a few
# iterations of the loop, and between two slices an iteration costs some twenty microseconds more.
TIME_SLICE = 0.0005


class TimeSlice:
    """The slice of one iteration, from now on."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = time.thread_time() + TIME_SLICE

    @property
    def is_used_up(self) -> bool:
        """Whether the others have to wait for the next iteration."""
        return time.thread_time() >= self._end
