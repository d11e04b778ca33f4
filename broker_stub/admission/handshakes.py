"""Limits the connections that have not sent their Open yet, and chooses the one to abort. No I/O.

Theory of operation
-------------------
Honest clients finish their handshake in a few round trips, if both sides have processor time. If thousands
connect at once, accepting all of them slows each one. So at most ``MAX_YOUNG`` unfinished handshakes may be
younger than ``PATIENCE``; further clients wait in the kernel's backlog. An older handshake is slow, silent or
hostile, and does not delay the others. The total is at most ``limit``; at the limit the oldest one is
aborted.

The age for aborting depends on the other handshakes. In a storm from overloaded machines, honest handshakes
take seconds, and aborted clients would only connect again. So the oldest handshake is aborted when it is
``SLOWER`` times as old as the recently finished ones.

A client that has not sent a byte is cheap to accept and loses nothing, so it delays no other client. At the
limit it is aborted before all others, and much earlier: thousands of silent sockets must not keep a health
probe waiting. Other clients cannot cause this earlier than ``MIN_SILENCE`` or, by sending late, delay it
beyond ``MIN_AGE``.

Rules
-----
* Accepting always continues: a handshake that delays it is finished or old within ``PATIENCE``, may be
  aborted later, and ends with the handshake timeout at the latest.
* A handshake is never aborted before ``MIN_AGE`` if its client has sent bytes, nor before ``MIN_SILENCE``
  otherwise.

Source: the oldest-first drop of half-open connections, RFC 4987, section 3.3.
"""

from __future__ import annotations

from typing import Protocol

# TCP, SASL and Open take about six round trips: a client on the same continent has finished by then.
PATIENCE = 0.1
# All of them may send at the same instant, and established connections wait for that: some 20 ms.
MAX_YOUNG = 100
MIN_AGE = 2.0
# The first bytes follow at once; if lost, Linux repeats them after 0.2 s and a round trip (RTO_MIN).
MIN_SILENCE = 0.25
SLOWER = 4.0
# The assumed duration of a handshake before any has finished, in seconds, and the weight of a new one.
_TYPICAL_AGE, _WEIGHT = 0.5, 1 / 16
# Seconds until the listener asks again: a handshake may finish at any time.
_RETRY_INTERVAL = 0.005


class PendingHandshake(Protocol):
    """A connection without an Open."""

    def abort(self, why: str) -> None:
        """Drop the connection without an AMQP Close."""


class Handshakes:
    """The half-open connections, oldest first.

    :ivar aborted: number of aborted handshakes so far.
    """

    __slots__ = ("_limit", "_old", "_silent", "_typical_age", "_typical_silence", "_young", "aborted")

    def __init__(self, limit: int) -> None:
        self.aborted = 0
        self._limit = limit
        self._typical_age = _TYPICAL_AGE
        self._typical_silence = 0.0
        self._silent: dict[PendingHandshake, float] = {}
        self._young: dict[PendingHandshake, float] = {}
        self._old: dict[PendingHandshake, float] = {}

    def __len__(self) -> int:
        return len(self._silent) + self.begun

    @property
    def begun(self) -> int:
        """The number of handshakes whose clients have sent bytes."""
        return len(self._young) + len(self._old)

    def wait_for(self, silent: PendingHandshake, now: float) -> None:
        """Add an accepted socket whose client has sent nothing."""
        self._silent[silent] = now

    def spoke(self, silent: PendingHandshake, now: float) -> None:
        """Remove a socket whose client has sent its first byte; ``begin`` follows."""
        since = self._silent.pop(silent)
        self._typical_silence += (now - since - self._typical_silence) * _WEIGHT

    def begin(self, handshake: PendingHandshake, now: float) -> None:
        """Add the connection of an accepted socket whose client has sent bytes."""
        self._young[handshake] = now

    def opened(self, handshake: PendingHandshake, now: float) -> None:
        """Remove a connection that has sent its Open."""
        since = self._pop(handshake)
        if since is not None:
            self._typical_age += (now - since - self._typical_age) * _WEIGHT

    def done(self, handshake: PendingHandshake) -> None:
        """Remove an ended connection, with or without an Open."""
        self._pop(handshake)

    def _pop(self, handshake: PendingHandshake) -> float | None:
        for each in (self._young, self._old, self._silent):
            if (since := each.pop(handshake, None)) is not None:
                return since
        return None

    def begin_delay(self, now: float) -> float:
        """Return the seconds until another handshake may begin; 0.0 for now."""
        self._age(now)
        return _RETRY_INTERVAL if len(self._young) >= MAX_YOUNG else 0.0

    def accept_delay(self, now: float) -> float:
        """Return the seconds until another socket may be accepted; 0.0 for now."""
        if delay := self.begin_delay(now):
            return delay
        if len(self) < self._limit:
            return 0.0
        silence = max(MIN_SILENCE, min(MIN_AGE, self._typical_silence * SLOWER))
        life = max(MIN_AGE, self._typical_age * SLOWER)
        for handshakes, age in ((self._silent, silence), (self._old or self._young, life)):
            if handshakes and next(iter(handshakes.values())) + age <= now:
                self._abort_first(handshakes, f"{self._limit} handshakes are unfinished")
                return 0.0
        return _RETRY_INTERVAL

    def abort_oldest(self, why: str) -> None:
        """Abort the oldest handshake, if any; silent clients come first."""
        self._abort_first(self._silent or self._old or self._young, why)

    def _abort_first(self, handshakes: dict[PendingHandshake, float], why: str) -> None:
        oldest = next(iter(handshakes), None)
        if oldest is not None:
            self.done(oldest)
            self.aborted += 1
            oldest.abort(why)

    def _age(self, now: float) -> None:
        while self._young:
            handshake, since = next(iter(self._young.items()))
            if since + PATIENCE > now:
                return
            del self._young[handshake]
            self._old[handshake] = since
