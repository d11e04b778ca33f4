"""How much of a turn of the event loop newcomers get, so that those already in do not wait for all of them.

Rules
-----
* A portion is processor time: on a busy machine newcomers get the same part of what the member gets.
* What has begun is finished: a portion only says whether to begin with the next one.
"""

from __future__ import annotations

import time

# Processor seconds: one or two steps of a handshake.  A message of those already in takes a few turns of
# the loop, and between two portions a turn costs some twenty microseconds more.
PORTION = 0.0005


class Portion:
    """The portion of one turn, from now on."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = time.thread_time() + PORTION

    @property
    def is_used_up(self) -> bool:
        """Whether the others have to wait for the next turn."""
        return time.thread_time() >= self._end
