"""The states of a search, and every move between them.

Rules
-----
1. A search is in exactly one state.  Only ``Search._move`` changes it, and only to what ``after`` returns.
2. A move without a row in ``MOVES`` raises ``IllegalMove``: a bug of the search, whatever its peers do.
3. Only ``DELAYED`` and ``BACKING_OFF`` precede ``IDLE``, and only ``IDLE`` precedes ``IN_ROUND``.  So every
   round but the first follows a delay.
4. ``FOUND`` and ``GAVE_UP`` have no row: they are the end.

Theory of operation
-------------------
An episode after a loss begins with ``DELAYED``, the first connect with ``IDLE``.  The search owner starts a
round, fails with every candidate, backs off, and starts the next round.  The other searches of the factory
stay ``IDLE`` until the owner has found the primary.  A ``retry_after`` of a server interrupts all of that.
docs/internals/search.md draws the table; ``scripts/state_diagrams.py`` writes the drawing anew.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType


class SearchState(enum.Enum):
    """What a search is doing, and what it dials meanwhile."""

    IDLE = "idle"
    """Between a wait and a round, or not the search owner: a reservation, redirects, a known primary."""
    DELAYED = "delayed"
    """A wait after a loss, or because a server asked for it: nothing, but for a primary that another
    connection finds while a reservation waits (rule 9 of ``search``)."""
    BACKING_OFF = "backing_off"
    """The client's own delay between two rounds: redirects, a newly known primary."""
    IN_ROUND = "in_round"
    """One pass over the list: a reservation, redirects, a newly known primary, every candidate."""
    FOUND = "found"
    """An attempt is the connection: nothing."""
    GAVE_UP = "gave_up"
    """There is a verdict: nothing."""


class Trigger(enum.Enum):
    """Why a search changes its state."""

    ROUND_STARTS = "round starts"
    ROUND_FAILED = "round failed"
    """Its delay is the client's own."""
    DELAY_IMPOSED = "delay imposed"
    """By the loss of the connection, by a ``retry_after`` that the search honors, or by one that interrupts
    a wait and that the search cannot honor any more."""
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
        # A member asked for a delay that max_retry_after does not cover any more.
        (SearchState.IDLE, Trigger.ROUND_FAILED): SearchState.BACKING_OFF,
        (SearchState.IDLE, Trigger.USABLE): SearchState.FOUND,
        (SearchState.IDLE, Trigger.LIMIT_REACHED): SearchState.GAVE_UP,
        (SearchState.IN_ROUND, Trigger.ROUND_FAILED): SearchState.BACKING_OFF,
        (SearchState.IN_ROUND, Trigger.DELAY_IMPOSED): SearchState.DELAYED,
        (SearchState.IN_ROUND, Trigger.USABLE): SearchState.FOUND,
        (SearchState.IN_ROUND, Trigger.LIMIT_REACHED): SearchState.GAVE_UP,
        (SearchState.BACKING_OFF, Trigger.WAIT_ENDED): SearchState.IDLE,
        # An attempt that hung in the round before has got a reservation.
        (SearchState.BACKING_OFF, Trigger.DELAY_IMPOSED): SearchState.DELAYED,
        (SearchState.BACKING_OFF, Trigger.USABLE): SearchState.FOUND,
        (SearchState.BACKING_OFF, Trigger.LIMIT_REACHED): SearchState.GAVE_UP,
        (SearchState.DELAYED, Trigger.WAIT_ENDED): SearchState.IDLE,
        # A newer reservation replaces the one that the search waits for.
        (SearchState.DELAYED, Trigger.DELAY_IMPOSED): SearchState.DELAYED,
        (SearchState.DELAYED, Trigger.USABLE): SearchState.FOUND,
        (SearchState.DELAYED, Trigger.LIMIT_REACHED): SearchState.GAVE_UP,
    }
)


def after(state: SearchState, trigger: Trigger) -> SearchState:
    """The state after this move.

    :raises IllegalMove: when the table has no row for it.
    """
    try:
        return MOVES[state, trigger]
    except KeyError:
        raise IllegalMove(f"a search that is {state.value} has no move for {trigger.value!r}") from None
