"""Writes the telemetry of a member, in the clients' format and with their writer (``haclient.telemetry``)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import proton

from broker_stub.amqp.conditions import CONNECTION_REDIRECT, RETRY_AFTER
from broker_stub.election.roles import Membership
from haclient import FailureReason
from haclient.cluster_url.endpoint import Endpoint
from haclient.telemetry import writer
from haclient.telemetry.jsonl import Value, long
from haclient.telemetry.schema import Kind
from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.writer import Alive

if TYPE_CHECKING:
    from broker_stub.telemetry import Fact

SOURCE = "broker_stub"
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


class MemberTelemetry:
    """Writes the lines of one member (a ``writer.Source``).

    :ivar dropped: entries dropped because the queue was full; ``reported``: the number reported so far.
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
        """Set the address of the member; earlier role changes are not recorded."""
        self._address_fields = {"server_address": address.host, "server_port": address.port}

    def record(self, kind: Kind, membership: Membership, **facts: Fact) -> None:
        """Record an event; a role event only if the role or the generation changed."""
        if kind is Kind.MEMBER_ROLE and not self._is_news(membership):
            return
        known: dict[str, Value] = {
            "role": str(membership.role),
            "generation": long(membership.generation),
            **self._address_fields,
        }
        for name, fact in facts.items():
            if isinstance(fact, proton.Condition):
                known |= _condition_fields(kind, fact)
            else:
                known[name] = _bounded(fact)
        self._channel.put(self, TelemetryEntry(kind, time.time(), time.monotonic(), known))

    def _is_news(self, membership: Membership) -> bool:
        before, now = self._last_reported, (membership.role, membership.generation)
        if not self._address_fields or now == before:
            return False
        self._last_reported = now
        return True

    # -- on the writer's thread ---------------------------------------------------------------

    def lines(self, entry: TelemetryEntry) -> Iterator[str]:
        """Format one entry."""
        self._sequence += 1
        facts = {"monotonic": entry.monotonic, "sequence": self._sequence, **entry.facts}
        yield self._lines.line(entry.kind, self._subject, entry.time, facts)

    def alive(self) -> Iterable[Alive]:
        """Return nothing: a member has no connections of this kind."""
        return ()

    def forked(self) -> None:
        """Start with a new instance id in a forked process."""
        self._sequence = 0
        self._lines = self._channel.lines()
        constant: dict[str, Value] = {"cluster": self._cluster, "member": self._name}
        self._subject = self._lines.subject(self._name, constant)


def _condition_fields(kind: Kind, condition: proton.Condition) -> dict[str, Value]:
    error = FailureReason.REDIRECTED if condition.name == CONNECTION_REDIRECT else FailureReason.CLOSED
    known: dict[str, Value] = {"condition": str(condition.name), "error_type": error.value}
    return known | {"retry_after": _retry_after(condition)} if kind is Kind.MEMBER_REFUSED else known


def _bounded(value: Value) -> Value:
    """Return a value that every reader can hold; peers choose names and numbers."""
    match value:
        case str():
            return value[:_MAX_NAME_LENGTH]
        case bool():
            return value
        case int():
            return long(value)
    return value


def _retry_after(condition: proton.Condition) -> float | None:
    """Return the ``retry-after`` of a refusal, in seconds."""
    info = condition.info if isinstance(condition.info, Mapping) else {}
    value = {str(key): each for key, each in info.items()}.get(RETRY_AFTER)
    return value / 1000 if isinstance(value, int | float) and math.isfinite(value) else None
