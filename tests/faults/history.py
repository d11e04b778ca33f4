"""The clients' record of a run, written while it happens.  Plain facts: no I/O, no judgement.

A message is named by its producer and its number in that producer's order.  Its fate, as its
producer knows it:

``ACKNOWLEDGED``  the broker accepted it: it must be received
``REFUSED``       it never left this client, or was rejected: it must not be received
``UNKNOWN``       anything else: it may be received, or not
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Fate(enum.Enum):
    """A producer's knowledge of one of its messages."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Name(NamedTuple):
    """The name of a message."""

    producer: str
    number: int


class Link(NamedTuple):
    """One attachment of one consumer: within it order means something.

    :param serial: which of the consumer's receivers; ``epoch``: which of the receiver's connections.
    """

    consumer: str
    serial: int
    epoch: int


@dataclass(slots=True)
class Receipt:
    """One delivery.

    :param count: the delivery count in its header; above 0 it is a redelivery.
    :param at: when it arrived, in seconds of the monotonic clock, which all processes share.
    :param accepted: whether it was accepted over the connection that delivered it.
    :param returned: whether the consumer released it: it is redelivered, out of order.
    :param confirmed_at: when the primary had confirmed its removal; ``None`` for never.
    """

    name: Name
    queue: str
    link: Link
    count: int
    at: float
    accepted: bool = False
    returned: bool = False
    confirmed_at: float | None = None


@dataclass(slots=True)
class History:
    """The record of all clients together.

    :param sent: the queue of each message that was given to a sender, in the order of its producer.
    """

    sent: dict[Name, str] = field(default_factory=dict)
    fates: dict[Name, Fate] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    left: dict[str, float] = field(default_factory=dict)
    """When the first of a queue's consumers began to leave it by its own will."""
    drained: dict[str, float] = field(default_factory=dict)
    """When the drain of a queue began, after all other consumers had left it."""
    serving: dict[int, str] = field(default_factory=dict)
    """The member that was seen to serve in each generation."""
    disputes: list[str] = field(default_factory=list)
    """Generations that went back, or that two members served in."""
    kept: set[str] = field(default_factory=set)
    """Queues without consumers before the drain: a message received twice was stored twice."""
    impatient: Counter[str] = field(default_factory=Counter)
    """The results of calls that were cancelled, or had little time, with their counts."""
    hung: list[Name] = field(default_factory=list)
    """Messages whose call did not return in time."""
    ended: dict[Name, float] = field(default_factory=dict)
    """When the fate became known, in seconds of the monotonic clock, which all processes share."""
    forced: list[tuple[float, float]] = field(default_factory=list)
    """The periods in which forced promotions may have lost acknowledged messages."""
    generations: dict[int, float] = field(default_factory=dict)
    """When the arbiter was last seen to hold each generation."""

    def sends(self, name: Name, queue: str) -> None:
        """Record that a message is given to a sender."""
        self.sent[name] = queue

    def ends(self, name: Name, fate: Fate, at: float) -> None:
        """Record the fate of a message."""
        self.fates[name] = fate
        self.ended[name] = at

    def receives(self, receipt: Receipt) -> None:
        """Record a delivery."""
        self.receipts.append(receipt)

    def accepts(self, receipt: Receipt) -> None:
        """Record an accept over the connection of the delivery."""
        receipt.accepted = True

    def confirms(self, receipt: Receipt, at: float) -> None:
        """Record that the primary has confirmed the removal."""
        receipt.confirmed_at = at

    def returns(self, receipt: Receipt) -> None:
        """Record that a consumer gives a message back."""
        receipt.returned = True

    def hangs(self, name: Name) -> None:
        """Record a call that did not return in time."""
        if name not in self.hung:
            self.hung.append(name)

    def keeps(self, *queues: str) -> None:
        """Record queues without consumers before the drain."""
        self.kept.update(queues)

    def leaves(self, queue: str, at: float) -> None:
        """Record that a consumer begins to detach: another one may receive its prefetched messages."""
        self.left[queue] = min(at, self.left.get(queue, at))

    def drains(self, queue: str, at: float) -> None:
        """Record that all consumers have left: only later ones receive."""
        self.drained[queue] = max(at, self.drained.get(queue, at))

    def fate(self, name: Name) -> Fate:
        """Return the fate of a message, by default unknown."""
        return self.fates.get(name, Fate.UNKNOWN)

    def serves(self, generation: int, member: str) -> None:
        """Record a member that serves in a generation."""
        before = self.serving.setdefault(generation, member)
        if before != member:
            self.disputes.append(f"{before} and {member} both served in generation {generation}")
