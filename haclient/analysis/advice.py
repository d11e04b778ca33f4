"""What the data supports as a policy, a cluster: each value only after a replay of the storm in a simulator.

Rules
-----
1. Pure: no Spark here, and no simulator.  ``tables/advice.py`` reads the facts; the command line passes the
   simulator as a ``Replay``.
2. Every parameter has a row.  Where nothing is proposed, the row says why.
3. ``accept_rate``: only where ``SLOWER`` saturated storms or more set up connections at less than ``BELOW``
   of the configured rate.  Their median, at least half and at most twice the configured one.
4. ``deadline``: only from ``OUTAGES`` outages, those not back included: ``MARGIN`` times what 99.9 % of them
   stayed under, at least ``SHORTEST``.  In the replay nobody gives up with it.
5. ``backoff_max``: for the largest saturated storm of the cluster.  N clients at a ceiling c make 2N/c
   attempts a second (the mean delay of full jitter is c/2): from c = 2N/rate on the primary can answer all
   of them.  Only where the last one is back ``BETTER`` earlier in the replay, without more attempts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

SLOWER, BELOW = 2, 0.9
LOWEST, HIGHEST = 0.5, 2.0  # of the configured rate
OUTAGES = 1000
MARGIN, SHORTEST = 2.0, 60.0
BETTER = 0.1
_SAME = 1.01  # a replay that is later by less than this is not later


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """One storm of a cluster.

    :param clients: connections that it hit.
    :param rate: connections that the primary set up in a second: while it was saturated, else at most.
    :param outage: seconds until the first one was back.
    """

    clients: int
    rate: float
    outage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the telemetry says about one cluster.

    :param cluster: its name; ``None`` for connections that do not know theirs.
    :param outages: those that have a downtime, or are not back.
    :param slow: seconds that 99.9 % of them stayed under.
    :param slow_is_bound: whether the one at that rank is not back.
    :param slower: saturated storms below ``BELOW`` of the configured rate.
    :param slower_rate: their median rate.
    :param storm: the largest one.
    :param saturated: the largest saturated one.
    :param strategy: of the clients' backoff.
    :param backoff_max: their ceiling in seconds.
    :param retry_after: whether servers ask for delays.
    """

    cluster: str | None
    outages: int
    slow: float | None = None
    slow_is_bound: bool = False
    slower: int = 0
    slower_rate: float | None = None
    storm: Storm | None = None
    saturated: Storm | None = None
    strategy: str | None = None
    backoff_max: float | None = None
    retry_after: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a storm is replayed with; ``None`` for the default."""

    storm: Storm
    strategy: str | None
    backoff_max: float | None
    retry_after: bool
    accept_rate: float | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a replay went.

    :param last: seconds from the loss until the last one was back; infinite if one never was.
    :param attempts: a client.
    :param gave_up: clients.
    """

    last: float
    attempts: float
    gave_up: int


class Replay(Protocol):
    """A simulator of storms."""

    def __call__(self, setting: Setting, /) -> Outcome | None:
        """Let the storm happen; ``None`` if it does not know the strategy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One row of the table ``advice``; docs/analysis.md has the columns."""

    cluster: str | None
    parameter: str
    current: float | None = None
    proposed: float | None = None
    reason: str
    basis: str | None = None
    last_before: float | None = None
    last_after: float | None = None
    attempts_before: float | None = None
    attempts_after: float | None = None


def advise(facts: Facts, *, accept_rate: float | None, play: Replay | None) -> Iterator[Advice]:
    """A row for each parameter.

    :param accept_rate: connections a second that the cluster is configured to admit, if that is known.
    """
    yield _accept_rate(facts, accept_rate, play)
    yield _backoff_max(facts, play)
    yield _deadline(facts, play)


def _accept_rate(facts: Facts, configured: float | None, play: Replay | None) -> Advice:
    row = Advice(cluster=facts.cluster, parameter="accept_rate", current=configured, reason="")
    if configured is None:
        return replace(row, reason="the configured rate is not known: pass it as --accept-rate")
    if facts.slower < SLOWER or facts.slower_rate is None or facts.saturated is None:
        reason = f"{SLOWER} saturated storms below {BELOW:.0%} of the configured rate are needed"
        return replace(row, reason=f"{reason}, {facts.slower} found")
    proposed = min(max(facts.slower_rate, LOWEST * configured), HIGHEST * configured)
    row = replace(row, basis=f"{facts.slower} saturated storms, {facts.slower_rate:.3g} setups a second")
    before = _setting(facts, facts.saturated, retry_after=True, accept_rate=configured)
    return _judged(
        replace(row, reason="the primary set up fewer connections a second than it is configured to admit"),
        proposed,
        play,
        before,
        replace(before, accept_rate=proposed),
    )


def _backoff_max(facts: Facts, play: Replay | None) -> Advice:
    row = Advice(cluster=facts.cluster, parameter="backoff_max", current=facts.backoff_max, reason="")
    storm = facts.saturated
    if storm is None:
        return replace(row, reason="no storm was saturated")
    if facts.backoff_max is None:
        return replace(row, reason="no line says which ceiling the clients have")
    proposed = float(math.ceil(2 * storm.clients / storm.rate))
    row = replace(row, basis=f"2 x {storm.clients} clients / {storm.rate:.3g} setups a second")
    before = _setting(facts, storm)
    return _judged(
        replace(row, reason="from this ceiling on, the primary can answer the attempts of all clients"),
        proposed,
        play,
        before,
        replace(before, backoff_max=proposed),
        better=BETTER,
    )


def _deadline(facts: Facts, play: Replay | None) -> Advice:
    row = Advice(cluster=facts.cluster, parameter="deadline", reason="")
    if facts.outages < OUTAGES or facts.slow is None:
        return replace(row, reason=f"{OUTAGES:,} outages are needed, {facts.outages:,} found")
    if facts.slow_is_bound:
        return replace(
            row, reason="of 1,000 outages one or more have not ended: nobody knows how long they take"
        )
    if facts.storm is None:
        return replace(row, reason="there is no storm to replay")
    proposed = max(SHORTEST, float(math.ceil(MARGIN * facts.slow)))
    row = replace(row, basis=f"99.9 % of {facts.outages:,} outages took less than {facts.slow:.3f} s")
    before = _setting(facts, facts.storm)
    return _judged(
        replace(row, reason=f"{MARGIN:g} times what 99.9 % of the outages took, at least {SHORTEST:g} s"),
        proposed,
        play,
        before,
        replace(before, deadline=proposed),
    )


def _setting(
    facts: Facts, storm: Storm, *, retry_after: bool | None = None, accept_rate: float | None = None
) -> Setting:
    return Setting(
        storm=storm,
        strategy=facts.strategy,
        backoff_max=facts.backoff_max,
        retry_after=facts.retry_after if retry_after is None else retry_after,
        accept_rate=accept_rate,
    )


def _judged(
    row: Advice, proposed: float, play: Replay | None, before: Setting, after: Setting, *, better: float = 0.0
) -> Advice:
    """The row with the replays, and with the proposal where they support it.

    :param better: by how much the last one must be back earlier; then there may be no more attempts.
    """
    if play is None:
        return replace(row, reason="there is no simulator here to replay a storm")
    old, new = play(before), play(after)
    if old is None or new is None:
        return replace(row, reason=f"the simulator does not know the strategy {before.strategy}")
    row = replace(
        row,
        last_before=_finite(old.last),
        last_after=_finite(new.last),
        attempts_before=old.attempts,
        attempts_after=new.attempts,
    )
    if new.gave_up > old.gave_up:
        return replace(row, reason=f"in the replay {new.gave_up:,} clients give up at {proposed:g}")
    if better and (new.last > (1 - better) * old.last or new.attempts > old.attempts):
        reason = f"in the replay {proposed:g} brings the last one back less than {better:.0%} earlier"
        return replace(row, reason=f"{reason}, or takes more attempts")
    if new.last > _SAME * old.last:
        return replace(row, reason=f"in the replay the last one is back later with {proposed:g}")
    return replace(row, proposed=proposed)


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
