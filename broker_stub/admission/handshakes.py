"""Connections that have not sent their Open yet: how many there may be, and which one makes room.  No I/O.

Theory of operation
-------------------
Honest clients finish their handshake in a few round trips, if both sides have the time.  When thousands
come at once, accepting all of them only makes each one slower, and they have the time to
lose: so at most ``MOST_YOUNG`` handshakes are begun in ``PATIENCE`` and not finished, and the next
clients wait in the kernel's backlog.  What is older than that is slow, silent or hostile, and does
not hold up the others.  There are at most ``limit`` of all; at the limit the oldest one is cut.

How old that is, depends on the others: when a storm comes from machines that are themselves short of
time, honest handshakes take seconds, and cutting them would only bring them back.  So the oldest
is cut when it is ``SLOWER`` times as old as those were that got through lately.

Rules
-----
* Accepting goes on in any case: what holds it up is done, or old in ``PATIENCE``, and can be cut some time
  later; and the handshake time-out ends it at last.
* Nobody is cut before ``LEAST_LIFE``.

Source: the oldest-first drop of half-open connections, RFC 4987, section 3.3.
"""

from __future__ import annotations

from typing import Protocol

# TCP, SASL and Open take about six round trips: a client on the same continent is done by then.
PATIENCE = 0.1
# All of them may send in the same instant, and those already in wait for that: some 20 ms.
MOST_YOUNG = 100
LEAST_LIFE = 2.0
SLOWER = 4.0
# What a handshake is taken to need before any was seen, in seconds, and the weight of a new one.
_USUAL, _WEIGHT = 0.5, 1 / 16
# Until the next look, in seconds: somebody may be done any time.
_LOOK_AGAIN = 0.005


class Newcomer(Protocol):
    """A connection without an Open."""

    def cut(self, why: str) -> None:
        """End it now."""


class Handshakes:
    """The half-open connections, oldest first.

    :ivar cut: how many had to make room so far.
    """

    __slots__ = ("_limit", "_old", "_usual", "_young", "cut")

    def __init__(self, limit: int) -> None:
        self.cut = 0
        self._limit = limit
        self._usual = _USUAL
        self._young: dict[Newcomer, float] = {}
        self._old: dict[Newcomer, float] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def begin(self, newcomer: Newcomer, now: float) -> None:
        """A socket was accepted."""
        self._young[newcomer] = now

    def opened(self, newcomer: Newcomer, now: float) -> None:
        """Its Open came."""
        since = self._pop(newcomer)
        if since is not None:
            self._usual += (now - since - self._usual) * _WEIGHT

    def done(self, newcomer: Newcomer) -> None:
        """It is gone, with or without an Open."""
        self._pop(newcomer)

    def _pop(self, newcomer: Newcomer) -> float | None:
        since = self._young.pop(newcomer, None)
        return self._old.pop(newcomer, None) if since is None else since

    def make_room(self, now: float) -> float:
        """Whether another socket may be accepted now (0.0), or how many seconds to wait with it."""
        self._age(now)
        if len(self._young) >= MOST_YOUNG:
            return _LOOK_AGAIN
        if len(self) < self._limit:
            return 0.0
        life = max(LEAST_LIFE, self._usual * SLOWER)
        if next(iter((self._old or self._young).values())) + life > now:
            return _LOOK_AGAIN
        self.cut_oldest(f"{self._limit} handshakes are under way")
        return 0.0

    def cut_oldest(self, why: str) -> None:
        """Cut the oldest one, if there is any."""
        oldest = next(iter(self._old or self._young), None)
        if oldest is not None:
            self.done(oldest)
            self.cut += 1
            oldest.cut(why)

    def _age(self, now: float) -> None:
        while self._young:
            newcomer, since = next(iter(self._young.items()))
            if since + PATIENCE > now:
                return
            del self._young[newcomer]
            self._old[newcomer] = since
