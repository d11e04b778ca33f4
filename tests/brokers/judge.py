"""Judges the histories of a cell's programs, after a final drain by a bare client. Pure.

Rules
-----
* *Missing*: settled, but neither received by the consumer nor drained.
* *Doubled*: stored twice. In the queue without consumers, each message that is drained twice. In the other
  queue, a message delivered again with delivery count 0 although no outage lies between. The losses that a
  client reports are no excuse: the client is under test.
* *Redelivered*: any other message that is delivered again. A consumer whose accept was lost gets it again.
* An *outage* ends with the first settlement after the longest gap that begins before the primary accepts
  again. The *client's share* is the part after the primary accepts. It is 0 if the client noticed the
  primary before the judge.
* ``haclient send`` does not report single settlements. For its messages, the first receipts take their
  place, so the outage includes the consumer's.
* An error that is not in ``ALLOWED`` is wrong. So is a call that gives up before its deadline, or returns
  long after it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.brokers import dials
from tests.brokers.dials import Dial, NextDial
from tests.brokers.programs.task import OUTCOMES_AT_END
from tests.faults.checker import check
from tests.faults.clients import decode
from tests.faults.history import Fate, History, Link, Name, Receipt
from tests.hosts.journal import read as read_journals

ALLOWED = frozenset({"SendTimeout", "Timeout", "MessageNotAccepted", "SendException", "StaleDelivery"})
"""The errors that a program may see: send timeout and refusal, of haclient and of proton."""
_TIMEOUTS = frozenset({"SendTimeout", "Timeout"})
# Seconds: the clocks of a call and its caller may differ by the first, a busy machine may be late by the
# second.
_EARLY, _LATE = 0.05, 30.0
_DRAINED = Link("drain", 0, 0)
_MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A fault, in seconds of the monotonic clock, as the judge observed it.

    :ivar asked: when it was requested; connections may be lost from then on.
    :ivar began: when the primary was gone.
    :ivar accepting: when the new primary began to accept; ``ended``: when the judge knew it.
    :ivar endpoint: the client-side address of the new primary, as ``host:port``.
    :ivar over: until then clients may discover lost connections.
    """

    asked: float
    began: float
    accepting: float
    ended: float
    endpoint: str
    over: float

    def touches(self, first: float, last: float) -> bool:
        """Return whether a connection may have been lost between two moments."""
        return self.asked <= last and first <= self.over


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that ended with an error.

    :param after: seconds that the call took.
    :param limit: the call's time limit in seconds; 0 without a limit.
    """

    process: str
    call: str
    error: str
    text: str
    after: float
    limit: float


@dataclass(slots=True)
class Evidence:
    """The records of all programs of a cell, and the drained messages."""

    history: History = field(default_factory=History)
    failures: list[Failure] = field(default_factory=list)
    dials: dict[str, list[Dial]] = field(default_factory=dict)
    """The dials of each program, in order."""
    silent: set[str] = field(default_factory=set)
    """Producers that report their settlements only when they end."""

    def drains(self, queue: str, bodies: Iterable[object], at: float) -> None:
        """Record messages that the final drain found."""
        for body in bodies:
            self.history.receives(Receipt(decode(body), queue, _DRAINED, 0, at))


def read(paths: Sequence[Path], *, kept: str) -> Evidence:
    """Read journals.

    :param kept: the queue without consumers.
    """
    evidence = Evidence()

    def take(line: dict[str, Any]) -> None:
        process = line["process"]
        if line["kind"] == "fail":
            facts = [line[key] for key in ("call", "error", "text", "after", "limit")]
            evidence.failures.append(Failure(process, *facts))
        elif line["event"] == OUTCOMES_AT_END:
            evidence.silent.add(process)

    evidence.history = read_journals(paths, take)
    evidence.history.keeps(kept)
    return evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judge's findings.

    :param outages: seconds, for each producer and fault; ``shares``: the client's part of each.
    :param next_dials: seconds, for each program and fault; likewise ``handshakes``: see ``dials``.
    :param most_dials: the most dials of one program at one address within a second while no member served.
    :param smallest_gap: the least seconds between two of those dials; ``None`` if there were no two.
    :param wrong: every violation; empty is good.
    """

    sent: int
    settled: int
    refused: int
    unknown: int
    missing: int
    doubled: int
    redelivered: int
    outages: list[float]
    shares: list[float]
    next_dials: list[float]
    handshakes: list[float]
    most_dials: int
    smallest_gap: float | None
    errors: dict[str, int]
    wrong: list[str]


def judge(evidence: Evidence, faults: Sequence[Outage], *, detects_duplicates: bool) -> Judgement:
    """Judge a history whose queues have been drained.

    :param detects_duplicates: whether a message stored twice is a violation.
    """
    verdict = check(evidence.history)
    live = _doubled(evidence, faults)
    doubled = (*verdict.twice, *live)
    measured = list(_measured(evidence, faults))
    back = list(_next_dials(evidence, faults))
    refused = list(_refused(evidence, faults))
    gaps = [gap for times in refused if (gap := dials.smallest_gap(times)) is not None]
    wrong = [f"missing: {_shown(verdict.lost)}"] if verdict.lost else []
    if doubled and detects_duplicates:
        wrong.append(f"stored twice: {_shown(doubled)}")
    wrong += verdict.unexpected[:_MOST_EXAMPLES]
    hung = [name for name in evidence.history.sent if name not in evidence.history.ended]
    if hung:
        wrong.append(f"no outcome at the end: {_shown(hung)}")
    wrong += sorted({text for each in evidence.failures if (text := _objection(each))})
    return Judgement(
        sent=verdict.sent,
        settled=verdict.acknowledged,
        refused=verdict.refused,
        unknown=verdict.unknown,
        missing=len(verdict.lost),
        doubled=len(doubled),
        redelivered=verdict.duplicates - len(doubled),
        outages=[round(outage, 3) for outage, _share in measured],
        shares=[round(share, 3) for _outage, share in measured],
        next_dials=[round(each.after, 3) for each in back],
        handshakes=[round(each.handshake, 3) for each in back],
        most_dials=max(map(dials.most_in_a_second, refused), default=0),
        smallest_gap=round(min(gaps), 3) if gaps else None,
        errors=dict(sorted(Counter(each.error for each in evidence.failures).items())),
        wrong=wrong,
    )


def _objection(failure: Failure) -> str:
    what = f"{failure.process}: {failure.call}: {failure.error}"
    if failure.error not in ALLOWED:
        return f"{what}: {failure.text}"
    if failure.limit and failure.error in _TIMEOUTS and failure.after < failure.limit - _EARLY:
        return f"{what} after {failure.after:.3f} of {failure.limit:g} s"
    if failure.limit and failure.after > failure.limit + _LATE:
        return f"{what} after {failure.after:.0f} s, with a limit of {failure.limit:g} s"
    return ""


def _doubled(evidence: Evidence, faults: Sequence[Outage]) -> Iterator[Name]:
    """Yield the messages of consumed queues that were delivered again without an outage between."""
    before: dict[Name, Receipt] = {}
    for receipt in sorted(evidence.history.receipts, key=lambda receipt: receipt.at):
        if receipt.queue in evidence.history.kept:
            continue
        first = before.get(receipt.name)
        before[receipt.name] = receipt
        if first is None or receipt.count:
            continue
        if not any(each.touches(first.at, receipt.at) for each in faults):
            yield receipt.name


def settlements(evidence: Evidence) -> dict[str, list[float]]:
    """Return when each producer's messages were settled; for a silent producer, when they arrived."""
    history, times = evidence.history, defaultdict[str, list[float]](list)
    for name, fate in history.fates.items():
        if fate is Fate.ACKNOWLEDGED and name.producer not in evidence.silent:
            times[name.producer].append(history.ended[name])
    received = set[Name]()
    for receipt in sorted(history.receipts, key=lambda receipt: receipt.at):
        if receipt.name.producer in evidence.silent and receipt.name not in received:
            received.add(receipt.name)
            if receipt.link != _DRAINED:
                times[receipt.name.producer].append(receipt.at)
    return {producer: sorted(each) for producer, each in times.items()}


def _next_dials(evidence: Evidence, faults: Sequence[Outage]) -> Iterator[NextDial]:
    ends = [*(fault.asked for fault in faults[1:]), float("inf")]
    for each in evidence.dials.values():
        for fault, until in zip(faults, ends, strict=True):
            if (
                found := dials.next_dial(
                    each, fault.endpoint, lost=fault.asked, since=fault.accepting, until=until
                )
            ) is not None:
                yield found


def _refused(evidence: Evidence, faults: Sequence[Outage]) -> Iterator[list[float]]:
    for each in evidence.dials.values():
        for fault in faults:
            yield from dials.refused(each, fault.asked, fault.accepting)


def _measured(evidence: Evidence, faults: Sequence[Outage]) -> Iterator[tuple[float, float]]:
    for times in settlements(evidence).values():
        for fault in faults:
            if (end := end_of_outage(times, fault)) is not None:
                yield end - fault.began, max(0.0, end - fault.ended)


def end_of_outage(times: Sequence[float], fault: Outage) -> float | None:
    """Return the first settlement after the longest gap that begins before a primary accepts again.

    :param times: the moments of settlements, in order.
    :returns: ``None`` if nothing was settled afterwards.
    """
    gaps = [
        (later - max(earlier, fault.began), later)
        for earlier, later in zip((fault.began, *times), times, strict=False)
        if later >= fault.began and earlier <= fault.ended
    ]
    return max(gaps)[1] if gaps else None


def _shown(names: Sequence[Name]) -> str:
    listed = ", ".join(f"{name.producer} {name.number}" for name in names[:_MOST_EXAMPLES])
    return f"{len(names)}, as {listed}"
