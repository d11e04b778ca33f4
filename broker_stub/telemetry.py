"""What a member writes down: whom it let in, parked, or refused with which hint, and what it became.

The lines have the clients' format and go through the clients' writer (``haclient.telemetry``).
The connections of a cluster-admin that only manages are left out: those are the manager's probes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import proton

from broker_stub.address import Address
from broker_stub.election.roles import Membership
from broker_stub.sites.anomalies import Odd
from haclient.discovery.evidence import FailureReason
from haclient.telemetry import writer
from haclient.telemetry.jsonl import Value, long
from haclient.telemetry.schema import Kind
from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.writer import Alive

SOURCE = "broker_stub"
_REDIRECT = "amqp:connection:redirect"
# A container id is the client's choice, and as long as it likes.
_LONGEST_ID = 300


@dataclass(frozen=True, slots=True)
class Happened:
    """One line in the making.

    :param time: seconds since the Unix epoch; ``monotonic``: seconds.
    """

    kind: Kind
    time: float
    monotonic: float
    facts: dict[str, Value]


class Log(Protocol):
    """What a member tells."""

    def listens(self, address: Address) -> None:
        """The member is at this address from now on."""

    def admitted(self, client_id: str | None, membership: Membership) -> None:
        """A client was let in."""

    def refused(self, client_id: str | None, membership: Membership, condition: proton.Condition) -> None:
        """A client was sent away, when it came."""

    def parked(self, client_id: str | None, membership: Membership) -> None:
        """A client is held until it can be served here or elsewhere."""

    def unparked(
        self, client_id: str | None, membership: Membership, condition: proton.Condition | None
    ) -> None:
        """A client is held no longer: it is served, or it was sent away, or it is gone."""

    def became(self, membership: Membership) -> None:
        """The role or the generation is another one."""

    def site(self, membership: Membership, status: Mapping[str, Any]) -> None:
        """How far another site is behind, and this one behind others."""

    def odd(self, membership: Membership, odd: Odd) -> None:
        """Events of another site were not as they should be."""


class Silence:
    """Telemetry is off."""

    def listens(self, address: Address) -> None:
        """Nothing."""

    def admitted(self, client_id: str | None, membership: Membership) -> None:
        """Nothing."""

    def refused(self, client_id: str | None, membership: Membership, condition: proton.Condition) -> None:
        """Nothing."""

    def parked(self, client_id: str | None, membership: Membership) -> None:
        """Nothing."""

    def unparked(
        self, client_id: str | None, membership: Membership, condition: proton.Condition | None
    ) -> None:
        """Nothing."""

    def became(self, membership: Membership) -> None:
        """Nothing."""

    def site(self, membership: Membership, status: Mapping[str, Any]) -> None:
        """Nothing."""

    def odd(self, membership: Membership, odd: Odd) -> None:
        """Nothing."""


class MemberLog:
    """Writes the lines of one member (a ``writer.Source``).

    :ivar dropped: entries that found the queue full; ``reported``: those that were told.
    """

    def __init__(self, settings: TelemetrySettings, *, cluster: str, name: str) -> None:
        self.dropped = 0
        self.reported = 0
        self._channel = writer.channel(settings, SOURCE)
        self._cluster, self._name = cluster, name
        self._place: dict[str, Value] = {}
        self._told: tuple[object, ...] = ()
        self.forked()
        self._channel.add(self)

    # -- on the broker's thread ---------------------------------------------------------------

    def listens(self, address: Address) -> None:
        """The member is at this address from now on; what it was before nobody could see."""
        self._place = {"server_address": address.host, "server_port": address.port}

    def admitted(self, client_id: str | None, membership: Membership) -> None:
        """A client was let in."""
        self._put(Kind.MEMBER_ADMITTED, membership, client_id=_short(client_id))

    def refused(self, client_id: str | None, membership: Membership, condition: proton.Condition) -> None:
        """A client was sent away, when it came."""
        self._put(
            Kind.MEMBER_REFUSED,
            membership,
            client_id=_short(client_id),
            **_why(condition),
            hint=_hint(condition),
        )

    def parked(self, client_id: str | None, membership: Membership) -> None:
        """A client is held until it can be served here or elsewhere."""
        self._put(Kind.MEMBER_PARKED, membership, client_id=_short(client_id))

    def unparked(
        self, client_id: str | None, membership: Membership, condition: proton.Condition | None
    ) -> None:
        """A client is held no longer: it is served, or it was sent away, or it is gone."""
        why = {} if condition is None else _why(condition)
        self._put(Kind.MEMBER_UNPARKED, membership, client_id=_short(client_id), **why)

    def became(self, membership: Membership) -> None:
        """The role or the generation is another one."""
        told = (membership.role, membership.generation)
        if self._place and told != self._told:
            self._told = told
            self._put(Kind.MEMBER_ROLE, membership)

    def site(self, membership: Membership, status: Mapping[str, Any]) -> None:
        """How far another site is behind, and this one behind others: a line each."""
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

    def odd(self, membership: Membership, odd: Odd) -> None:
        """Events of another site were not as they should be; not what was in them."""
        sequence = None if odd.sequence is None else long(odd.sequence)
        facts: dict[str, Value] = {"site_link": odd.link, "site_case": odd.case, "site_sequence": sequence}
        self._put(Kind.MEMBER_ODD_EVENT, membership, **facts, site_count=long(odd.count))

    def _put(self, kind: Kind, membership: Membership, **facts: Value) -> None:
        known: dict[str, Value] = {
            "role": str(membership.role),
            "generation": long(membership.generation),
            **self._place,
            **facts,
        }
        self._channel.put(self, Happened(kind, time.time(), time.monotonic(), known))

    # -- on the writer's thread ---------------------------------------------------------------

    def lines(self, entry: Happened) -> Iterator[str]:
        """The line of one entry."""
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
        constant: dict[str, Value] = {
            "service": self._channel.service,
            "instance": self._channel.instance,
            "cluster": self._cluster,
            "member": self._name,
        }
        self._subject = self._lines.subject(self._name, constant)


def log_of(settings: TelemetrySettings | None, *, cluster: str, name: str) -> Log:
    """The log of a member, which may be none."""
    return Silence() if settings is None else MemberLog(settings, cluster=cluster, name=name)


def _why(condition: proton.Condition) -> dict[str, Value]:
    kind = FailureReason.REDIRECTED if condition.name == _REDIRECT else FailureReason.CLOSED
    return {"condition": str(condition.name), "error_type": kind.value}


def _short(client_id: str | None) -> str | None:
    return None if client_id is None else client_id[:_LONGEST_ID]


def _hint(condition: proton.Condition) -> float | None:
    """The delay that a refusal asks for, in seconds."""
    info = condition.info if isinstance(condition.info, Mapping) else {}
    value = {str(key): each for key, each in info.items()}.get("retry-after")
    return value / 1000 if isinstance(value, int | float) and math.isfinite(value) else None
