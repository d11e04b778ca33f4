"""Propose policy values for each cluster; a value is proposed only if a replay of its storm supports it.

Rules
-----
1. Pure: no Spark here, and no simulator.  ``tables/advice.py`` reads the facts; the command line passes the
   simulator as a ``Replay``.
2. Every parameter has a row.  If no value is proposed, the row gives the reason.
3. ``accept_rate``: proposed if at least ``SLOWER`` saturated storms set up connections at less than ``BELOW``
   of the configured rate.  The proposal is their median, limited to 0.5 to 2 times the configured rate.
4. ``deadline``: proposed from ``OUTAGES`` outages on, including unfinished ones.  It is ``MARGIN`` times the
   downtime that 99.9 % of them stayed under, at least ``SHORTEST``.  In the replay no client may give up.
5. ``backoff_max``: computed for the largest saturated storm of the cluster.  N clients with a ceiling of c
   seconds make 2N/c attempts a second, because full jitter has a mean delay of c/2.  So the primary can
   answer all of them from c = 2N/rate on.  Proposed if the replay restores the last client ``BETTER``
   earlier, without more attempts.
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
_SAME = 1.01  # tolerance: a longer replay within this factor does not count as later


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """One storm of a cluster.

    :param clients: connections lost in the storm.
    :param rate: connections a second that the primary set up while saturated; else its highest rate.
    :param outage: seconds until the first connection was back.
    """

    clients: int
    rate: float
    outage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about one cluster, read from telemetry.

    :param cluster: name of the cluster; ``None`` for connections that have not learned it.
    :param outages: outages with a known downtime, plus unfinished ones.
    :param slow: seconds that 99.9 % of the outages stayed under.
    :param slow_is_bound: whether the outage at that rank is unfinished.
    :param slower: saturated storms below ``BELOW`` of the configured rate.
    :param slower_rate: median setup rate of these storms.
    :param storm: the largest storm.
    :param saturated: the largest saturated storm.
    :param strategy: backoff strategy of the clients.
    :param backoff_max: ceiling of the clients' delays, in seconds.
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
    """Parameters of one replay; ``None`` stands for the default."""

    storm: Storm
    strategy: str | None
    backoff_max: float | None
    retry_after: bool
    accept_rate: float | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a replay.

    :param last: seconds from the loss until the last client was back; infinite if one never was.
    :param attempts: attempts per client.
    :param gave_up: number of clients that gave up.
    """

    last: float
    attempts: float
    gave_up: int


class Replay(Protocol):
    """A simulator of storms."""

    def __call__(self, setting: Setting, /) -> Outcome | None:
        """Replay the storm; return ``None`` if the simulator does not know the strategy."""


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
    """Yield one row per parameter.

    :param accept_rate: connections a second that the cluster is configured to admit, if known.
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
    """Add the results of both replays to the row, and the proposal if they support it.

    :param better: required reduction of the last client's downtime; if set, more attempts are refused too.
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
