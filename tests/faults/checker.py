"""Checks a history after a final drain, and reports every violation. Pure.

Rules
-----
* *Lost*: acknowledged, and never received. If it was acknowledged while a forced promotion may lose
  messages by its documentation, it is *lost to force*: counted, and no violation.
* *Unexpected*: received, and either never sent, or refused, or from another queue than it was sent to.
* *Disordered*: received on one link after a later message of the same producer to the same queue. A
  message counts only if it was received once, was no redelivery and was not released. Any other message
  may be late.
* A message with an outcome unknown to its producer may be late, too. The producer gave it up, and it
  may be in flight on the old connection while later messages are sent again over the next one.
* A consumer that leaves by its own will releases its prefetched messages, with delivery count 0, and
  another consumer receives them late. So order counts until the first consumer leaves the queue, and
  again in the drain. By then all have left, and the released messages are at their places in the queue.
* A message that is received again without a release is a *duplicate*. Duplicates are allowed (at least
  once), and counted. *Twice* is a duplicate over one link of the drain, in a queue without earlier
  consumers: then the broker stored it twice.
* A consumer with confirmed accepts is the only one of its queue. *Confirmed twice* are messages
  confirmed for two deliveries. *Confirmed again* are messages delivered after their confirmation.
  *Confirmed late* are messages first confirmed after a later message of the same producer. A forced
  promotion may cause the first two.
* *Hung*: a call that did not return within its time, or after its cancellation.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.history import Fate, History, Link, Name, Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of the checker."""

    sent: int
    acknowledged: int
    refused: int
    unknown: int
    received: int
    duplicates: int
    returned: int
    confirmed: int = 0
    confirmed_twice: tuple[Name, ...] = ()
    confirmed_again: tuple[Name, ...] = ()
    confirmed_late: tuple[str, ...] = ()
    lost_to_force: tuple[Name, ...] = ()
    lost: tuple[Name, ...] = ()
    twice: tuple[Name, ...] = ()
    hung: tuple[Name, ...] = ()
    unexpected: tuple[str, ...] = ()
    disordered: tuple[str, ...] = ()
    disputes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Return whether no rule was broken."""
        confirmed = (self.confirmed_twice, self.confirmed_again, self.confirmed_late)
        wrong = (self.lost, self.twice, self.hung, self.unexpected, self.disordered, self.disputes)
        return not any((*confirmed, *wrong))


def check(history: History) -> Verdict:
    """Judge a history whose queues have been drained."""
    fates = Counter(history.fate(name) for name in history.sent)
    times = Counter(receipt.name for receipt in history.receipts)
    missing = [name for name in history.sent if _is_missing(history, name, times)]
    first = _first_confirmed(history)
    returned = sum(receipt.returned for receipt in history.receipts)
    return Verdict(
        sent=len(history.sent),
        acknowledged=fates[Fate.ACKNOWLEDGED],
        refused=fates[Fate.REFUSED],
        unknown=fates[Fate.UNKNOWN],
        received=len(times),
        duplicates=times.total() - len(times) - returned,
        returned=returned,
        confirmed=len(first),
        confirmed_twice=tuple(_confirmed_twice(history, first)),
        confirmed_again=tuple(_confirmed_again(history, first)),
        confirmed_late=tuple(_confirmed_late(history, first)),
        lost_to_force=tuple(name for name in missing if _is_forced(history, name)),
        lost=tuple(name for name in missing if not _is_forced(history, name)),
        twice=tuple(_twice(history)),
        hung=tuple(history.hung),
        unexpected=tuple(_unexpected(history)),
        disordered=tuple(_disordered(history, times)),
        disputes=tuple(history.disputes),
    )


def _first_confirmed(history: History) -> dict[Name, Receipt]:
    """Return confirmed messages in the order of their first confirmation."""
    confirmed = [receipt for receipt in history.receipts if receipt.confirmed_at is not None]
    first: dict[Name, Receipt] = {}
    for receipt in sorted(confirmed, key=lambda receipt: receipt.confirmed_at or 0.0):
        first.setdefault(receipt.name, receipt)
    return first


def _confirmed_twice(history: History, first: dict[Name, Receipt]) -> Iterator[Name]:
    for receipt in history.receipts:
        before = first.get(receipt.name)
        if before is None or before is receipt or receipt.confirmed_at is None:
            continue
        if not _in_force(history, before.confirmed_at):
            yield receipt.name


def _confirmed_again(history: History, first: dict[Name, Receipt]) -> Iterator[Name]:
    for receipt in history.receipts:
        before = first.get(receipt.name)
        if before is None or before.confirmed_at is None or receipt.at <= before.confirmed_at:
            continue
        if not _in_force(history, before.confirmed_at):
            yield receipt.name


def _confirmed_late(history: History, first: dict[Name, Receipt]) -> Iterator[str]:
    before: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    for name, receipt in first.items():
        if history.fate(name) is Fate.ACKNOWLEDGED:
            lane = (receipt.queue, name.producer)
            if name.number < before[lane]:
                yield f"{name} was confirmed after {before[lane]}"
            before[lane] = max(before[lane], name.number)


def _is_missing(history: History, name: Name, times: Counter[Name]) -> bool:
    return history.fate(name) is Fate.ACKNOWLEDGED and not times[name]


def _is_forced(history: History, name: Name) -> bool:
    """Return whether a forced promotion may have lost it."""
    return _in_force(history, history.ended.get(name))


def _in_force(history: History, at: float | None) -> bool:
    """Return whether a forced promotion may have lost messages known at that time."""
    return at is not None and any(begin <= at <= end for begin, end in history.forced)


def _twice(history: History) -> Iterator[Name]:
    seen: set[tuple[Link, Name]] = set()
    for receipt in history.receipts:
        if receipt.queue in history.kept:
            if (receipt.link, receipt.name) in seen:
                yield receipt.name
            seen.add((receipt.link, receipt.name))


def _unexpected(history: History) -> Iterator[str]:
    for receipt in history.receipts:
        queue = history.sent.get(receipt.name)
        if queue is None:
            yield f"{receipt.name} was never sent"
        elif queue != receipt.queue:
            yield f"{receipt.name} was sent to {queue} and came from {receipt.queue}"
        elif history.fate(receipt.name) is Fate.REFUSED:
            yield f"{receipt.name} was refused, or never left its producer"


def _disordered(history: History, times: Counter[Name]) -> Iterator[str]:
    before: dict[tuple[Link, str, str], int] = defaultdict(lambda: -1)
    for receipt in history.receipts:
        if _shows_order(history, receipt) and _keeps_order(receipt, times):
            lane = (receipt.link, receipt.queue, receipt.name.producer)
            if receipt.name.number < before[lane] and history.fate(receipt.name) is Fate.ACKNOWLEDGED:
                yield f"{receipt.name} came after {before[lane]} on {receipt.link}"
            before[lane] = receipt.name.number


def _shows_order(history: History, receipt: Receipt) -> bool:
    """Return whether no message had been released by then, so that order counts."""
    left, drained = (times.get(receipt.queue, math.inf) for times in (history.left, history.drained))
    return receipt.at < left or receipt.at >= drained


def _keeps_order(receipt: Receipt, times: Counter[Name]) -> bool:
    return times[receipt.name] == 1 and receipt.count == 0 and not receipt.returned
