"""The outcome of a delivery: the four terminal states of AMQP 1.0 part 3, section 3.4."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class OutcomeState(enum.Enum):
    """The terminal delivery states; the values are their AMQP descriptor codes."""

    ACCEPTED = 0x24
    REJECTED = 0x25
    RELEASED = 0x26
    MODIFIED = 0x27


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome with which the receiver settled a message.

    :param condition: the AMQP error condition of a rejection.
    :param description: its description.
    :param delivery_failed: (modified) counts as a failed delivery attempt.
    :param undeliverable_here: (modified) must not be delivered to this receiver again.
    :param annotations: (modified) entries to merge into the message's annotations: an encoded AMQP map with
        symbols as keys (section 3.4.5); empty for none.
    """

    state: OutcomeState
    condition: str | None = None
    description: str | None = None
    delivery_failed: bool = False
    undeliverable_here: bool = False
    annotations: bytes = b""

    @property
    def accepted(self) -> bool:
        """Return whether the receiver took responsibility for the message."""
        return self.state is OutcomeState.ACCEPTED


ACCEPTED = Outcome(OutcomeState.ACCEPTED)
RELEASED = Outcome(OutcomeState.RELEASED)
