"""Accepted deliveries of a receiver that wait to be confirmed, over any number of connections.

Rules
-----
* The outcome is sent once, unsettled (rcv-settle-mode *second*).  The delivery is confirmed when the primary
  settles it as accepted.
* If the connection is lost before, the delivery is in doubt.  The next Attach of the link lists it in its
  unsettled map, and the answer resolves it.  It is confirmed if the answer has its tag as accepted, and stale
  otherwise.  It is also stale if the broker does not resume links, or the Attach had no space for it.
* A caller may stop waiting; the confirmation remains for the next caller.
* While there are too many, the receiver grants no credit.

Source: AMQP 1.0 part 2, sections 2.6.13 (resuming deliveries) and 2.8.3 (receiver-settle-mode).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from haclient.engine import unsettled
from haclient.engine.wire import attach_frame
from haclient.error_catalog.base import quoted
from haclient.errors import ConfirmNotSupported, HaclientError, StaleDelivery, another
from haclient.outcome import ACCEPTED, Outcome, OutcomeState

if TYPE_CHECKING:
    from haclient.engine.links import DeliveryPointer, ReceiverLink
    from haclient.engine.protocol import Engine

# Fewer than fit into an Attach of 64 KB, at 22 bytes each.
MOST_UNCONFIRMED = 2000
_ACCEPTED = OutcomeState.ACCEPTED.value
_IN_DOUBT = "the delivery's connection was lost before the accept was confirmed"


class Confirmation:
    """The pending confirmation of one accepted delivery."""

    __slots__ = ("_done", "_error", "_loop", "tag")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tag = b""
        self._loop = loop
        self._done: asyncio.Future[None] = loop.create_future()
        self._error: HaclientError | None = None

    @property
    def done(self) -> bool:
        """Return whether the result is known."""
        return self._done.done()

    @property
    def stale(self) -> bool:
        """Return whether the result is known and the delivery is not confirmed."""
        return self._error is not None

    async def wait(self) -> None:
        """Wait until the delivery is confirmed.  Any number of callers may wait; each may be cancelled.

        :raises StaleDelivery: if it is not confirmed; its message may be delivered again.
        :raises HaclientError: if the receiver ended before the result was known.
        """
        if not self._done.done():
            await asyncio.shield(self._done)
        if self._error is not None:
            raise another(self._error)

    def resolve(self, error: HaclientError | None = None) -> None:
        """Set the result: confirmed, or this error."""
        if not self._done.done():
            self._error = error
            self._done.set_result(None)


class Confirmations:
    """A receiver's unconfirmed accepts, kept across reconnects."""

    __slots__ = ("_asked", "_loop", "_pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: dict[Confirmation, None] = {}
        self._asked: dict[bytes, Confirmation] = {}
        """The confirmations in the unsettled map of the last Attach, by tag."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def too_many(self) -> bool:
        """Return whether the peer must confirm some before it may send more."""
        return len(self._pending) >= MOST_UNCONFIRMED

    def accept(self, link: ReceiverLink, pointer: DeliveryPointer | None) -> Confirmation:
        """Accept a delivery; if the peer sent it settled, it is confirmed at once."""
        made = Confirmation(self._loop)
        if pointer is None:
            made.resolve()
            return made
        tag = link.update(pointer, ACCEPTED, made)
        if tag is None:
            made.resolve(_lost("; its message may come again"))
        else:
            made.tag = tag
            self._pending[made] = None
        return made

    def confirmed(self, confirmation: Confirmation, outcome: Outcome | None) -> None:
        """Record that the peer settled an accepted delivery.

        Without an outcome nothing is confirmed: a peer whose link ends settles like that, too.
        """
        self._pending.pop(confirmation, None)
        if outcome is not None and outcome.accepted:
            confirmation.resolve()
        else:
            how = "without an outcome" if outcome is None else f"as {outcome.state.name.lower()}"
            why = f"the primary settled it {how}; its message may come again"
            confirmation.resolve(StaleDelivery(f"the accept was not confirmed: {why}"))

    def refusal(self, link: ReceiverLink, address: str | None) -> HaclientError | None:
        """Return the error if the peer's Attach says that it confirms nothing."""
        if link.is_confirmed:
            return None
        return ConfirmNotSupported(
            f"the primary does not confirm what is accepted from {quoted(address)}: "
            "it answered the attach with another rcv-settle-mode than second"
        )

    # -- over a new connection ------------------------------------------------------------------

    def attach(self, engine: Engine, link: ReceiverLink) -> None:
        """Attach the link, and ask about every delivery in doubt."""
        asked = {each.tag: each for each in self._pending}
        sent = unsettled.attach(engine, link, dict.fromkeys(asked, _ACCEPTED))
        self._asked = dict(tuple(asked.items())[:sent])

    def answered(self, link: ReceiverLink) -> None:
        """Resolve the deliveries in doubt by the peer's Attach."""
        if not self._pending:
            return
        states = attach_frame.states(link.peer_unsettled)
        pending, self._pending = self._pending, {}
        asked, self._asked = self._asked, {}
        for each in pending:
            state = states.get(each.tag) if asked.get(each.tag) is each else None
            if state == _ACCEPTED:
                each.resolve()
            elif state is None:
                each.resolve(
                    _lost(", and the new primary does not have it as accepted: its message may come again")
                )
            else:
                each.resolve(_lost(": its message has left the queue since, by this accept or another one"))

    def fail(self, error: HaclientError) -> None:
        """Fail all: the receiver has ended, or the next connection cannot know them."""
        pending, self._pending = self._pending, {}
        self._asked.clear()
        for each in pending:
            each.resolve(error)


def _lost(then: str) -> StaleDelivery:
    return StaleDelivery(f"{_IN_DOUBT}{then}")
