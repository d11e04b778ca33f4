"""Generate telemetry of a fictitious fleet, with the correct results of its analysis.

For tests, demonstrations and benchmarks.  Spark generates the lines on its executors, from ``spark.range``
and native expressions; each is a function of the seed, so the same arguments give the same lines on any
cluster.

``fleet`` decides the events of each client, and ``lines`` writes them as telemetry.  ``truth`` computes
the results that an analysis should find.  ``fault_injection`` lists the injected faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from haclient.analysis.generate import truth
from haclient.analysis.generate.fault_injection import CLEAN, USUAL, Faults
from haclient.analysis.generate.fleet import Fleet
from haclient.analysis.generate.lines import events, flat, text
from haclient.analysis.io import ingest

__all__ = ["CLEAN", "Faults", "Generated", "generate", "write"]

_COMPRESSION = {"json": "none", "json.gz": "gzip"}


@dataclass(frozen=True, slots=True)
class Generated:
    """A fleet's telemetry.

    :param events: the columns of ``ingest``, without copies and bad lines.
    :param lines: JSON text in the column ``value``, with copies, cut and bad lines.
    :param truth: correct episodes; likewise ``storms``, ``flapping`` and ``clocks``.  The module ``truth``
        has their columns.
    """

    events: DataFrame
    lines: DataFrame
    truth: DataFrame
    storms: DataFrame
    flapping: DataFrame
    clocks: DataFrame


def generate(
    spark: SparkSession,
    *,
    clients: int,
    outages: int = 3,
    seed: int = 0,
    faults: Faults = USUAL,
    clusters: int = 3,
    name: str = "",
) -> Generated:
    """Generate a fleet; about 15 lines for each client and outage.

    :param name: prefix of the names of its clients and clusters.
    """
    fleet = Fleet(clients, outages, seed, faults, clusters, name)
    episodes = fleet.episodes_of(spark)
    made = events(fleet, episodes)
    return Generated(
        flat(made),
        text(made),
        truth.episodes(fleet, episodes),
        truth.storms(episodes),
        truth.flapping(episodes),
        truth.clocks(episodes),
    )


def write(generated: Generated, path: str, *, form: str = "json", files: int | None = None) -> None:
    """Write the lines into the folder ``path``; on this machine, under the names of telemetry files.

    :param form: ``json``, ``json.gz``, or ``parquet``: a store of ``ingest``.
    :param files: number of JSON files; by default one per task.
    """
    if form == "parquet":
        ingest.store(generated.events, path)
        return
    lines = generated.lines if files is None else generated.lines.coalesce(files)
    lines.write.mode("errorifexists").option("compression", _COMPRESSION[form]).text(path)
    if "://" not in path:
        _rename(Path(path))


def _rename(folder: Path) -> None:
    """Rename Spark's text files to names of telemetry, and remove all other files that Spark wrote."""
    for path in list(folder.iterdir()):
        if path.name.startswith("part-"):
            path.rename(path.with_name(path.name.replace(".txt", ".jsonl")))
        else:
            path.unlink()
