"""Compute all tables of a set of lines, with as few passes over the lines as possible.

Passes
------
1. ``rollup``: the combinations of names in the lines.  It runs first, because other queries are built from
   its values; members, split claims and advice are computed from it.
2. ``episodes.facts``, the only shuffle of lines by client.  It is persisted: episodes, storms,
   members, not_recovered and alarms are computed from it.
3. ``time_buckets`` (storms over time), ``connects`` (members), ``delays`` (jitter): each reads a few
   columns and leaves a small table.
4. ``site_lag``, if the roll-up has lines about sites.
5. ``resources``: the attributes for grouping the fleet; ``hit_by`` is computed from it and the facts.

Before them ``clock.placed`` and ``clock.lives`` read three numbers of each line.

Spark persists the facts in memory and then on disk; small tables are materialized (``rollup.materialize``).

``each`` computes a table on demand; later tables reuse its persisted frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame

from haclient.analysis.advice import Replay
from haclient.analysis.io.session import computed_once, single
from haclient.analysis.tables import (
    advice,
    alarms,
    clock,
    dictionary,
    episodes,
    flapping,
    hit_by,
    jitter,
    members,
    rollup,
    site_lag,
)
from haclient.analysis.tables.rollup import materialize
from haclient.analysis.tables.storms import cores, time_buckets
from haclient.analysis.tables.storms import table as storms


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Parameters of the tables.

    :param as_of: time of the question; by default the time of the last lines (``clock.as_of``).
    :param silence: seconds without a line after which a client without a connection is silent.
    :param storm: definition of a storm.
    :param accept_rate: connections a second that the clusters are configured to admit, if known.
    :param replay: simulator for the advice; without it no values are proposed.
    """

    as_of: datetime | None = None
    silence: float = episodes.SILENCE
    storm: cores.Definition = cores.USUAL
    accept_rate: float | None = None
    replay: Replay | None = None


NAMES = (
    *(
        "episodes",
        "storms",
        "storm_timeline",
        "storm_reasons",
        "jitter",
        "members",
        "alarms",
        "not_recovered",
    ),
    *("advice", "coverage", "site_lag", "resources", "hit_by"),
)
"""The names of the tables, in the order of ``each``."""


def each(
    events: DataFrame, options: Options = Options(), *, quarantine: DataFrame | None = None
) -> Iterator[DataFrame]:
    """Yield the tables, in the order of ``NAMES``.

    :param events: from ``clock.placed``, preferably from a store: they are read several times.
    :param quarantine: the table ``quarantine``, for its alarm.
    """
    with ThreadPoolExecutor(1) as pool:  # queries that need only the lines run in parallel
        heard = pool.submit(clock.lives, events)
        delays = pool.submit(_jitter, events)
        yield from _each(events, options, heard, delays, quarantine)


def _jitter(events: DataFrame) -> DataFrame:
    drawn = jitter.delays(events)
    return jitter.statistics(drawn, materialize(jitter.histogram(drawn)))


def _each(
    events: DataFrame,
    options: Options,
    heard: Future[DataFrame],
    delays: Future[DataFrame],
    quarantine: DataFrame | None,
) -> Iterator[DataFrame]:
    """See ``each``.

    :param heard: from ``clock.lives``.
    :param delays: the table ``jitter``.
    """
    rolled_up = materialize(rollup.roll_up(events))
    seen = rollup.seen_values(rolled_up)
    known = computed_once(episodes.facts(events, rolled_up, seen))
    outages = known.where("known > 0")
    rest = episodes.unfinished(outages).localCheckpoint()
    lives = heard.result()
    as_of = clock.as_of(lives) if options.as_of is None else clock.microseconds(options.as_of)
    rows = single(episodes.classified(outages, rest, as_of=as_of, silence=options.silence))
    yield episodes.published(rows)
    hit = cores.losses(rows, options.storm)
    found = materialize(storms.extents(hit))
    buckets = materialize(time_buckets.time_buckets(events, hit))
    storm_rows = materialize(storms.summary(found, buckets))
    yield storm_rows
    yield time_buckets.timeline(buckets, found)
    yield time_buckets.reasons(buckets, found)
    jitter_rows = delays.result()
    yield jitter_rows
    named = dictionary.dictionary(rolled_up)
    flaps = materialize(flapping.flapping(rows, named))
    yield members.members(rolled_up, members.connects(events, rolled_up), rows, flaps)
    missing = members.gaps(known).localCheckpoint()
    dropped = materialize(members.drops(events, missing))
    yield alarms.together(
        alarms.split_claims(rolled_up),
        alarms.backwards(rows),
        alarms.without_connection(rows),
        alarms.flapping(flaps),
        alarms.missing(missing),
        alarms.dropped(dropped),
        alarms.clocks(clock.wrong(lives, as_of)),
        alarms.uneven_delays(jitter_rows),
        alarms.storms(storm_rows),
        *([] if quarantine is None else [alarms.quarantine(quarantine)]),
    )
    yield episodes.not_recovered(rows, named)
    yield advice.advice(rows, storm_rows, rolled_up, accept_rate=options.accept_rate, replay=options.replay)
    yield members.coverage(rolled_up, missing, dropped)
    yield site_lag.site_lag(events if site_lag.has_lines(rolled_up) else events.limit(0))
    combinations = computed_once(hit_by.resources(events))
    yield combinations
    lately = None if as_of is None else as_of - int(options.silence * 1e6)
    yield hit_by.hit_by(rows, combinations, heard_since=lately)
