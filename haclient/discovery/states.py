"""The states of a search, and every move between them.

Rules
-----
1. A search is in exactly one state.  Only ``Search._move`` changes it, always to the result of ``after``.
2. A move without a row in ``MOVES`` raises ``IllegalMove``: a bug of the search, never a peer's fault.
3. Only ``DELAYED`` and ``BACKING_OFF`` precede ``IDLE``, and only ``IDLE`` precedes ``IN_ROUND``.  So every
   round but the first follows a delay.
4. ``FOUND`` and ``GAVE_UP`` are final and have no row.

Theory of operation
-------------------
An episode after a loss begins in ``DELAYED``, the first connect in ``IDLE``.  The search owner starts a
round, fails with every candidate, backs off, and starts the next round.  The other searches of the factory
stay ``IDLE`` until the owner has found the primary.  A ``retry_after`` of a server interrupts any of these.
docs/internals/search.md shows the table as a diagram, which ``scripts/state_diagrams.py`` writes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType


class SearchState(enum.Enum):
    """The state of a search; each says which endpoints may be dialled in it."""

    IDLE = "idle"
    """Is between a wait and a round, or not the owner.  Dials a reservation, redirects, a known primary."""
    DELAYED = "delayed"
    """Waits after a loss, or because a server asked for it.  Dials nothing, except a primary found by another
    connection while a reservation waits (rule 9 of ``search``)."""
    BACKING_OFF = "backing_off"
    """Waits the client's own delay between two rounds.  Dials redirects, a newly known primary."""
    IN_ROUND = "in_round"
    """Passes over the list once.  Dials a reservation, redirects, a newly known primary, every candidate."""
    FOUND = "found"
    """An attempt became the connection.  Dials nothing."""
    GAVE_UP = "gave_up"
    """The search gave up.  Dials nothing."""


class Trigger(enum.Enum):
    """The reason for a change of state."""

    ROUND_STARTS = "round starts"
    ROUND_FAILED = "round failed"
    """The client chooses the delay."""
    DELAY_IMPOSED = "delay imposed"
    """After the loss of the connection; by a ``retry_after`` that the search honors; or by one that
    interrupts a wait but can no longer be honored."""
    WAIT_ENDED = "wait ended"
    USABLE = "session usable"
    LIMIT_REACHED = "limit reached"
    """A deadline, the number of attempts, or a refusal by every member."""


class IllegalMove(RuntimeError):
    """The table has no such move."""


MOVES: Mapping[tuple[SearchState, Trigger], SearchState] = MappingProxyType(
    {
        (SearchState.IDLE, Trigger.ROUND_STARTS): SearchState.IN_ROUND,
        (SearchState.IDLE, Trigger.DELAY_IMPOSED): SearchState.DELAYED,
        # A member asked for a delay beyond max_retry_after.
        (SearchState.IDLE, Trigger.ROUND_FAILED): SearchState.BACKING_OFF,
        (SearchState.IDLE, Trigger.USABLE): SearchState.FOUND,
        (SearchState.IDLE, Trigger.LIMIT_REACHED): SearchState.GAVE_UP,
        (SearchState.IN_ROUND, Trigger.ROUND_FAILED): SearchState.BACKING_OFF,
        (SearchState.IN_ROUND, Trigger.DELAY_IMPOSED): SearchState.DELAYED,
        (SearchState.IN_ROUND, Trigger.USABLE): SearchState.FOUND,
        (SearchState.IN_ROUND, Trigger.LIMIT_REACHED): SearchState.GAVE_UP,
        (SearchState.BACKING_OFF, Trigger.WAIT_ENDED): SearchState.IDLE,
        # An attempt left from the previous round got a reservation.
        (SearchState.BACKING_OFF, Trigger.DELAY_IMPOSED): SearchState.DELAYED,
        (SearchState.BACKING_OFF, Trigger.USABLE): SearchState.FOUND,
        (SearchState.BACKING_OFF, Trigger.LIMIT_REACHED): SearchState.GAVE_UP,
        (SearchState.DELAYED, Trigger.WAIT_ENDED): SearchState.IDLE,
        # A newer reservation replaces the current one.
        (SearchState.DELAYED, Trigger.DELAY_IMPOSED): SearchState.DELAYED,
        (SearchState.DELAYED, Trigger.USABLE): SearchState.FOUND,
        (SearchState.DELAYED, Trigger.LIMIT_REACHED): SearchState.GAVE_UP,
    }
)


def after(state: SearchState, trigger: Trigger) -> SearchState:
    """Return the state after a move.

    :raises IllegalMove: if the table has no row for the move.
    """
    try:
        return MOVES[state, trigger]
    except KeyError:
        raise IllegalMove(f"a search that is {state.value} has no move for {trigger.value!r}") from None
