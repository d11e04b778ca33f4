"""Writes the telemetry of a member, in the clients' format and with their writer (``haclient.telemetry``)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import proton

from broker_stub.amqp.conditions import CONNECTION_REDIRECT, RETRY_AFTER
from broker_stub.election.roles import Membership
from broker_stub.sites.anomalies import Anomaly
from haclient import FailureReason
from haclient.cluster_url.endpoint import Endpoint
from haclient.telemetry import writer
from haclient.telemetry.jsonl import Value, long
from haclient.telemetry.schema import Kind
from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.writer import Alive

SOURCE = "broker_stub"
# Peers choose container ids and names, of any length.
_MAX_NAME_LENGTH = 300


@dataclass(frozen=True, slots=True)
class TelemetryEntry:
    """One line before it is formatted.

    :param time: seconds since the Unix epoch; ``monotonic``: seconds.
    """

    kind: Kind
    time: float
    monotonic: float
    facts: dict[str, Value]


class MemberTelemetryWriter:
    """Writes the lines of one member (a ``writer.Source``).

    :ivar dropped: entries that found the queue full; ``reported``: those that were reported.
    """

    def __init__(self, settings: TelemetrySettings, *, cluster: str, name: str) -> None:
        self.dropped = 0
        self.reported = 0
        self._channel = writer.channel(settings, SOURCE)
        self._cluster, self._name = cluster, name
        self._address_fields: dict[str, Value] = {}
        self._last_reported: tuple[object, ...] = ()
        self.forked()
        self._channel.add(self)

    # -- on the broker's thread ---------------------------------------------------------------

    def listens(self, address: Endpoint) -> None:
        """Set the address of the member; role changes before it are not recorded."""
        self._address_fields = {"server_address": address.host, "server_port": address.port}

    def admitted(self, client_id: str | None, membership: Membership) -> None:
        """A client was admitted."""
        self._put(Kind.MEMBER_ADMITTED, membership, client_id=_short(client_id))

    def refused(self, client_id: str | None, membership: Membership, condition: proton.Condition) -> None:
        """A client was refused or redirected at its Open."""
        self._put(
            Kind.MEMBER_REFUSED,
            membership,
            client_id=_short(client_id),
            **_error_fields(condition),
            retry_after=_retry_after(condition),
        )

    def parked(self, client_id: str | None, membership: Membership) -> None:
        """A client is parked until it can be served here or elsewhere."""
        self._put(Kind.MEMBER_PARKED, membership, client_id=_short(client_id))

    def unparked(
        self, client_id: str | None, membership: Membership, condition: proton.Condition | None
    ) -> None:
        """A client is no longer parked: it is served, closed, or disconnected."""
        why = {} if condition is None else _error_fields(condition)
        self._put(Kind.MEMBER_UNPARKED, membership, client_id=_short(client_id), **why)

    def became(self, membership: Membership) -> None:
        """The role or the generation changed."""
        reported = (membership.role, membership.generation)
        if self._address_fields and reported != self._last_reported:
            self._last_reported = reported
            self._put(Kind.MEMBER_ROLE, membership)

    def site(self, membership: Membership, status: Mapping[str, Any]) -> None:
        """How far other sites lag behind this one, and this one behind others: a line each."""
        source = status.get("source")
        if source is not None:
            facts = {"lag_events": source["lag_events"], "sequence": source["last_sequence"]}
            self._put_site(membership, facts, seconds=source["lag_seconds"])
        for link in status.get("links", ()):
            facts = {name: link[name] for name in ("duplicates", "gaps")}
            last = max(link["last_sequence"].values(), default=0)
            named = {"site_link": link["name"], "state": link["state"]}
            self._put_site(membership, {**facts, "sequence": last}, seconds=link["delay_seconds"], **named)

    def _put_site(
        self, membership: Membership, counts: Mapping[str, int], *, seconds: float | None, **named: Value
    ) -> None:
        numbers: dict[str, Value] = {f"site_{name}": long(count) for name, count in counts.items()}
        self._put(Kind.MEMBER_SITE, membership, **numbers, **named, site_lag_seconds=seconds)

    def anomaly(self, membership: Membership, anomaly: Anomaly) -> None:
        """Events of another site were out of order, missing or malformed; without their content."""
        sequence = None if anomaly.sequence is None else long(anomaly.sequence)
        facts: dict[str, Value] = {
            "site_link": anomaly.link,
            "site_case": anomaly.case,
            "site_sequence": sequence,
        }
        self._put(Kind.MEMBER_ANOMALY, membership, **facts, site_count=long(anomaly.count))

    def disk(self, membership: Membership, level: str) -> None:
        """The disk of the store has reached a level, or left it."""
        self._put(Kind.MEMBER_DISK, membership, state=level)

    def set_aside(self, membership: Membership, replica: str, queue: str, state: str) -> None:
        """A queue cannot be copied to a replica, or was copied to it after all; the log has the reason."""
        names: dict[str, Value] = {"replica": _short(replica), "queue": _short(queue)}
        self._put(Kind.MEMBER_SET_ASIDE, membership, state=state, **names)

    def _put(self, kind: Kind, membership: Membership, **facts: Value) -> None:
        known: dict[str, Value] = {
            "role": str(membership.role),
            "generation": long(membership.generation),
            **self._address_fields,
            **facts,
        }
        self._channel.put(self, TelemetryEntry(kind, time.time(), time.monotonic(), known))

    # -- on the writer's thread ---------------------------------------------------------------

    def lines(self, entry: TelemetryEntry) -> Iterator[str]:
        """Format one entry."""
        self._sequence += 1
        facts = {"monotonic": entry.monotonic, "sequence": self._sequence, **entry.facts}
        yield self._lines.line(entry.kind, self._subject, entry.time, facts)

    def alive(self) -> Iterable[Alive]:
        """A member has no connections of this kind."""
        return ()

    def forked(self) -> None:
        """Another process, another instance id."""
        self._sequence = 0
        self._lines = self._channel.lines()
        constant: dict[str, Value] = {"cluster": self._cluster, "member": self._name}
        self._subject = self._lines.subject(self._name, constant)


def _error_fields(condition: proton.Condition) -> dict[str, Value]:
    kind = FailureReason.REDIRECTED if condition.name == CONNECTION_REDIRECT else FailureReason.CLOSED
    return {"condition": str(condition.name), "error_type": kind.value}


def _short(name: str | None) -> str | None:
    return None if name is None else name[:_MAX_NAME_LENGTH]


def _retry_after(condition: proton.Condition) -> float | None:
    """The ``retry-after`` of a refusal, in seconds."""
    info = condition.info if isinstance(condition.info, Mapping) else {}
    value = {str(key): each for key, each in info.items()}.get(RETRY_AFTER)
    return value / 1000 if isinstance(value, int | float) and math.isfinite(value) else None
