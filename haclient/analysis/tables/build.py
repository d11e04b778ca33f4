"""All tables of one set of lines, from as few passes over them as there can be.

Passes
------
1. ``survey``: the names that lines share.  It is run first, for the others are built from what it knows;
   members, split claims and advice are made of it.
2. ``outages``, the only shuffle of lines by client.  Kept: episodes, storms, absent, alarms are made of it.
3. ``pulse`` (storms over time), ``connects`` (members), ``delays`` (jitter): each reads a few
   columns and leaves a small table.
4. ``site_lag``, where the survey has seen lines about sites.

Outages are kept by Spark, in memory and then on disk; what is small, as ``kept`` says.

``each`` makes a table when it is asked for, and the next one may be of what it kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame

from haclient.analysis.tables import (
    advice,
    episodes,
    jitter,
    members,
    not_recovered,
    rollup,
    site_lag,
    storms,
)
from haclient.analysis.tables.materialize import small


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the tables depend on besides the lines.

    :param as_of: when the question is asked; the time of the last line without it.
    :param silence: seconds without a line after which a client that is away never came back.
    :param gap: seconds between two losses of one storm.
    :param storm_min_clients: connections that make a storm.
    """

    as_of: datetime | None = None
    silence: float = episodes.SILENCE
    gap: float = storms.GAP
    storm_min_clients: int = storms.LEAST


NAMES = (
    *("episodes", "storms", "storm_timeline", "storm_reasons", "jitter", "members", "alarms", "absent"),
    *("advice", "coverage", "site_lag"),
)
"""The tables, in the order of ``each``."""


def each(events: DataFrame, options: Options = Options()) -> Iterator[DataFrame]:
    """The tables, in the order of ``NAMES``.

    :param events: distinct lines, best of a store: they are read several times.
    """
    surveyed = small(rollup.survey(events))
    known = rollup.known(surveyed)
    outages = episodes.outages(events, surveyed, known).persist()
    rest = episodes.unfinished(outages).localCheckpoint()
    rows = episodes.judged(outages, rest, known, as_of=options.as_of, silence=options.silence)
    yield episodes.published(rows)
    lost = storms.losses(rows, gap=options.gap)
    found = small(storms.extents(lost, least=options.storm_min_clients))
    beats = small(storms.pulse(events, found))
    storm_rows = small(storms.summary(found, beats))
    yield storm_rows
    yield storms.timeline(beats)
    yield storms.reasons(beats)
    drawn = jitter.delays(events)
    yield jitter.judged(drawn, small(jitter.placed(drawn)))
    yield members.members(surveyed, members.connects(events), rows)
    missing = small(members.gaps(rows))
    yield members.alarms(surveyed, rows, missing, events)
    yield not_recovered.absent(rows, rollup.words(surveyed))
    yield advice.advice(rows, storm_rows, surveyed)
    yield members.coverage(surveyed, missing, events)
    yield site_lag.site_lag(events if site_lag.are_told_of(surveyed) else events.limit(0))


def all_tables(events: DataFrame, options: Options = Options()) -> dict[str, DataFrame]:
    """Every table by its name; the arguments are those of ``each``."""
    return dict(zip(NAMES, each(events, options), strict=True))
