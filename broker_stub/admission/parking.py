"""Clients that a member holds until it serves, or until it knows who does.

Theory of operation
-------------------
A client asks for it in its Open (``haclient:park``), and is told so in the answer; its Begin is not
answered.  It costs the member a socket and its heartbeats, and when its turn comes everything
dear is done: TCP, TLS and SASL.  The lot knows who is parked, since when, and whose turn comes
when; what a turn is, the ``entrance`` says.

Rules
-----
* There are at most ``limit``, each for at most ``timeout`` seconds.
* Turns come in the order in which they are due, and those that are due together in the order in
  which the clients came.  In one turn of the event loop a ``portion`` of them leave, whatever the reason.
* ``leave`` is called for everybody, whatever ends it.

Source: DESIGN section 6.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Protocol

import proton

from broker_stub.admission.time_slice import Portion


class Guest(Hashable, Protocol):
    """A connection that can be parked."""

    def unpark(self) -> None:
        """Serve it; it leaves."""

    def turn_away(self, condition: proton.Condition) -> None:
        """Close it; it leaves."""


class Lot:
    """Who is parked.

    :param limit: how many at most.
    :param timeout: seconds that one is held at most.
    :param turn: called when it is somebody's turn, with whether there was no wait for it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        limit: int,
        timeout: float,
        turn: Callable[[Guest, bool], None],
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._timeout = timeout
        self._turn = turn
        self._since: dict[Guest, float] = {}
        self._due: list[tuple[float, int, Guest, bool]] = []
        self._numbers = itertools.count()
        self._next: asyncio.Handle | None = None
        self._expiry: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    @property
    def full(self) -> bool:
        """Whether nobody else can be parked."""
        return len(self._since) >= self._limit

    def park(self, guest: Guest) -> None:
        """Hold a client from now on."""
        self._since[guest] = self._loop.time()
        if self._expiry is None:
            self._expire()

    def leave(self, guest: Guest) -> bool:
        """Hold it no longer; whether it was held."""
        return self._since.pop(guest, None) is not None

    def close(self) -> None:
        """Nobody's turn comes any more."""
        self.forget_turns()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    # -- turns ----------------------------------------------------------------------------------

    def schedule(self, guest: Guest, wait: float) -> None:
        """It is this client's turn in so many seconds."""
        heapq.heappush(self._due, self._entry(guest, wait))
        self._wait_for_the_next()

    def schedule_all(self, wait: Callable[[Guest], float]) -> None:
        """Give everybody a turn, in the order in which they came."""
        self._due = [self._entry(guest, wait(guest)) for guest in self._since]
        heapq.heapify(self._due)
        self._wait_for_the_next()

    def _entry(self, guest: Guest, wait: float) -> tuple[float, int, Guest, bool]:
        return self._loop.time() + wait, next(self._numbers), guest, wait == 0

    def forget_turns(self) -> None:
        """Nobody's turn comes, until somebody is given one."""
        self._due.clear()
        self._wait_for_the_next()

    def _wait_for_the_next(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._due:
            due = self._due[0][0]
            if due <= self._loop.time():
                self._next = self._loop.call_soon(self._take_turns)
            else:
                self._next = self._loop.call_at(due, self._take_turns)

    def _take_turns(self) -> None:
        self._next = None
        now, portion = self._loop.time(), Portion()
        while self._due and self._due[0][0] <= now:
            _due, _number, guest, at_once = heapq.heappop(self._due)
            if guest in self._since:
                self._turn(guest, at_once)
                if portion.is_used_up:
                    break
        self._wait_for_the_next()

    # -- the time-out ---------------------------------------------------------------------------

    def _expire(self) -> None:
        """Send away who has been here too long, and look again when the next one has."""
        self._expiry = None
        now, portion = self._loop.time(), Portion()
        why = f"parked for {self._timeout:g} s without a turn"
        while self._since and not portion.is_used_up:
            guest, since = next(iter(self._since.items()))
            if since + self._timeout > now:
                break
            guest.turn_away(proton.Condition("amqp:connection:forced", why))
        oldest = next(iter(self._since.values()), None)
        if oldest is not None:
            self._expiry = self._loop.call_at(oldest + self._timeout, self._expire)
