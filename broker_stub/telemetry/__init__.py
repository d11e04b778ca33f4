"""The telemetry of a member: admissions, refusals with their ``retry-after``, and role changes.

Connections of a cluster-admin that only manages are omitted: they are the supervisor's probes. ``writer``
writes the lines; it is imported only if telemetry is on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import proton

from broker_stub.sites.anomalies import Anomaly
from haclient.telemetry.jsonl import Value
from haclient.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from broker_stub.telemetry.writer import MemberTelemetry

# A member may run for years without cleanup: a few hundred million compressed lines, or three months.
_KEEP_SIZE = 1024 * 1024 * 1024
_KEEP_SECONDS = 90 * 86400.0

Fact = Value | proton.Condition
"""A fact of an event: a column of its type, or a condition, which yields several columns."""


def settings_of(directory: str | os.PathLike[str]) -> TelemetrySettings:
    """Return the telemetry settings of a member, with a bound on size and age across restarts."""
    return TelemetrySettings(directory, keep_size=_KEEP_SIZE, keep_seconds=_KEEP_SECONDS)


def member_telemetry(
    settings: TelemetrySettings | None, *, cluster: str, name: str
) -> MemberTelemetry | None:
    """Return the telemetry of a member; ``None`` without settings."""
    if settings is None:
        return None
    # Imported here: half a megabyte that a member without telemetry does not need.
    from broker_stub.telemetry.writer import MemberTelemetry  # noqa: PLC0415

    return MemberTelemetry(settings, cluster=cluster, name=name)


def anomaly_facts(anomaly: Anomaly) -> dict[str, Fact]:
    """Return the facts of a ``MEMBER_ANOMALY``: events of another site out of order, missing or malformed.

    The content of the events is not included.
    """
    return {
        "site_link": anomaly.link,
        "site_case": anomaly.case,
        "site_sequence": anomaly.sequence,
        "site_count": anomaly.count,
    }


def site_facts(status: Mapping[str, Any]) -> Iterator[dict[str, Fact]]:
    """Yield the facts of each ``MEMBER_SITE``: the lag of other sites behind this one, and the reverse."""
    source = status.get("source")
    if source is not None:
        yield {
            "site_lag_events": source["lag_events"],
            "site_sequence": source["last_sequence"],
            "site_lag_seconds": source["lag_seconds"],
        }
    for link in status.get("links", ()):
        yield {
            "site_link": link["name"],
            "state": link["state"],
            "site_duplicates": link["duplicates"],
            "site_gaps": link["gaps"],
            "site_sequence": max(link["last_sequence"].values(), default=0),
            "site_lag_seconds": link["delay_seconds"],
        }
