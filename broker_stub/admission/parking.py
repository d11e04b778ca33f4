"""Parks clients until the member serves, or knows the serving member.

Theory of operation
-------------------
A client requests parking in its Open (``haclient:park``). The member confirms it in its own Open, but does
not answer the Begin. A parked connection costs the member a socket and heartbeats. When its slot is due,
the expensive part (TCP, TLS, SASL) is done. ``Parking`` stores the parked connections, the start of their
parking, and the times of their slots. The ``controller`` decides the effect of a slot.

Rules
-----
* At most ``limit`` connections are parked, each for at most ``timeout`` seconds.
* Slots run in the order of their times; slots of the same time run in the order of connecting. One iteration
  of the event loop releases as many as fit into a ``TimeSlice``.
* ``remove`` is called for every connection, whatever ends its parking.

Source: docs/storms.md.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Protocol

import proton

from broker_stub.admission.newcomer_scheduler import TimeSlice
from broker_stub.amqp.conditions import CONNECTION_FORCED


class ParkedConnection(Hashable, Protocol):
    """A connection that can be parked."""

    def unpark(self) -> None:
        """Serve the connection; calls ``remove``."""

    def close_with(self, condition: proton.Condition) -> None:
        """Close the connection; calls ``remove``."""


class Parking:
    """The parked connections of one member.

    :param limit: most connections.
    :param timeout: most seconds that a connection stays parked.
    :param run_slot: called when a slot is due; the second argument is true if the slot had no wait.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        limit: int,
        timeout: float,
        run_slot: Callable[[ParkedConnection, bool], None],
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._timeout = timeout
        self._run_slot = run_slot
        self._since: dict[ParkedConnection, float] = {}
        self._due: list[tuple[float, int, ParkedConnection, bool]] = []
        self._sequence = itertools.count()
        self._next: asyncio.Handle | None = None
        self._expiry: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    @property
    def full(self) -> bool:
        """Return whether the parking limit is reached."""
        return len(self._since) >= self._limit

    def park(self, connection: ParkedConnection) -> None:
        """Park a connection."""
        self._since[connection] = self._loop.time()
        if self._expiry is None:
            self._expire()

    def remove(self, connection: ParkedConnection) -> bool:
        """Remove a connection; return whether it was parked."""
        return self._since.pop(connection, None) is not None

    def close(self) -> None:
        """Cancel all slots and timers."""
        self.cancel_slots()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    # -- slots ----------------------------------------------------------------------------------

    def schedule(self, connection: ParkedConnection, wait: float) -> None:
        """Give a connection a slot in ``wait`` seconds."""
        heapq.heappush(self._due, self._entry(connection, wait))
        self._arm_timer()

    def schedule_all(self, wait: Callable[[ParkedConnection], float]) -> None:
        """Give every connection a slot, in the order of parking."""
        self._due = [self._entry(connection, wait(connection)) for connection in self._since]
        heapq.heapify(self._due)
        self._arm_timer()

    def _entry(self, connection: ParkedConnection, wait: float) -> tuple[float, int, ParkedConnection, bool]:
        return self._loop.time() + wait, next(self._sequence), connection, wait == 0

    def cancel_slots(self) -> None:
        """Cancel all slots; the connections stay parked."""
        self._due.clear()
        self._arm_timer()

    def _arm_timer(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._due:
            due = self._due[0][0]
            if due <= self._loop.time():
                self._next = self._loop.call_soon(self._run_due_slots)
            else:
                self._next = self._loop.call_at(due, self._run_due_slots)

    def _run_due_slots(self) -> None:
        self._next = None
        now, time_slice = self._loop.time(), TimeSlice()
        while self._due and self._due[0][0] <= now:
            _due, _sequence_number, connection, at_once = heapq.heappop(self._due)
            if connection in self._since:
                self._run_slot(connection, at_once)
                if time_slice.is_used_up:
                    break
        self._arm_timer()

    # -- the timeout ----------------------------------------------------------------------------

    def _expire(self) -> None:
        """Close connections that were parked too long, and schedule the next check."""
        self._expiry = None
        now, time_slice = self._loop.time(), TimeSlice()
        why = f"parked for {self._timeout:g} s without a slot"
        while self._since and not time_slice.is_used_up:
            connection, since = next(iter(self._since.items()))
            if since + self._timeout > now:
                break
            connection.close_with(proton.Condition(CONNECTION_FORCED, why))
        oldest = next(iter(self._since.values()), None)
        if oldest is not None:
            self._expiry = self._loop.call_at(oldest + self._timeout, self._expire)
