"""All tables of one set of lines, from as few passes over them as there can be.

Passes
------
1. ``outages``, the only shuffle of lines by client.  Kept: episodes, storms, absent, alarms are made of it.
2. ``pulse`` (storms over time), ``sightings`` (members), ``delays`` (jitter): each reads a few
   columns and leaves a small table.  Those that are read twice are kept.

What is kept is kept by Spark, in memory and then on disk.  Nothing here is computed before
one of the tables is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame

from haclient.analysis import absent, advice, episodes, jitter, members, storms


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


def all_tables(events: DataFrame, options: Options = Options()) -> dict[str, DataFrame]:
    """Every table by its name.

    :param events: distinct lines, best of a store: they are read several times.
    """
    outages = episodes.judged(
        episodes.outages(events), events, as_of=options.as_of, silence=options.silence
    ).persist()
    found = storms.extents(storms.losses(outages, gap=options.gap, least=options.storm_min_clients)).persist()
    beats = storms.pulse(events, found).persist()
    seen = members.sightings(events).persist()
    storm_rows = storms.summary(found, beats)
    return {
        "episodes": episodes.published(outages),
        "storms": storm_rows,
        "storm_timeline": storms.timeline(beats),
        "storm_reasons": storms.reasons(beats),
        "jitter": jitter.jitter(events),
        "members": members.members(seen, outages),
        "alarms": members.alarms(seen, outages, events),
        "absent": absent.absent(outages),
        "advice": advice.advice(outages, storm_rows, events),
    }
