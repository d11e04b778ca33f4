"""The telemetry of a member: admissions, refusals with their ``retry-after``, and role changes.

The lines leave out connections of a cluster-admin that only manages: those are the supervisor's probes.
``writer`` writes them; it is imported when telemetry is on, and not before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import proton

from broker_stub.election.roles import Membership
from broker_stub.sites.anomalies import Anomaly
from haclient.cluster_url.endpoint import Endpoint
from haclient.telemetry.settings import TelemetrySettings

# Nobody cleans up after a member that runs for years: a few hundred million lines, compressed, or a quarter.
_KEEP_SIZE = 1024 * 1024 * 1024
_KEEP_SECONDS = 90 * 86400.0


class MemberTelemetry(Protocol):
    """The events that a member records."""

    def listens(self, address: Endpoint) -> None:
        """Set the address of the member."""

    def admitted(self, client_id: str | None, membership: Membership) -> None:
        """A client was admitted."""

    def refused(self, client_id: str | None, membership: Membership, condition: proton.Condition) -> None:
        """A client was refused or redirected at its Open."""

    def parked(self, client_id: str | None, membership: Membership) -> None:
        """A client is parked until it can be served here or elsewhere."""

    def unparked(
        self, client_id: str | None, membership: Membership, condition: proton.Condition | None
    ) -> None:
        """A client is no longer parked: it is served, closed, or disconnected."""

    def became(self, membership: Membership) -> None:
        """The role or the generation changed."""

    def site(self, membership: Membership, status: Mapping[str, Any]) -> None:
        """How far other sites lag behind this one, and this one behind others."""

    def anomaly(self, membership: Membership, anomaly: Anomaly) -> None:
        """Events of another site were out of order, missing or malformed."""

    def disk(self, membership: Membership, level: str) -> None:
        """The disk of the store has reached a level, or left it."""

    def set_aside(self, membership: Membership, replica: str, queue: str, state: str) -> None:
        """A queue cannot be copied to a replica, or was copied to it after all."""


class NullMemberTelemetry:
    """Telemetry is off."""

    def listens(self, address: Endpoint) -> None:
        """Do nothing."""

    def admitted(self, client_id: str | None, membership: Membership) -> None:
        """Do nothing."""

    def refused(self, client_id: str | None, membership: Membership, condition: proton.Condition) -> None:
        """Do nothing."""

    def parked(self, client_id: str | None, membership: Membership) -> None:
        """Do nothing."""

    def unparked(
        self, client_id: str | None, membership: Membership, condition: proton.Condition | None
    ) -> None:
        """Do nothing."""

    def became(self, membership: Membership) -> None:
        """Do nothing."""

    def site(self, membership: Membership, status: Mapping[str, Any]) -> None:
        """Do nothing."""

    def anomaly(self, membership: Membership, anomaly: Anomaly) -> None:
        """Do nothing."""

    def disk(self, membership: Membership, level: str) -> None:
        """Do nothing."""

    def set_aside(self, membership: Membership, replica: str, queue: str, state: str) -> None:
        """Do nothing."""


def settings_of(directory: str | os.PathLike[str]) -> TelemetrySettings:
    """How a member writes its telemetry: with a bound, by size and age, for all its lives together."""
    return TelemetrySettings(directory, keep_size=_KEEP_SIZE, keep_seconds=_KEEP_SECONDS)


def member_telemetry(settings: TelemetrySettings | None, *, cluster: str, name: str) -> MemberTelemetry:
    """The telemetry of a member; without settings it does nothing."""
    if settings is None:
        return NullMemberTelemetry()
    # Imported here: it is half a megabyte that a member without telemetry does not need.
    from broker_stub.telemetry.writer import MemberTelemetryWriter  # noqa: PLC0415

    return MemberTelemetryWriter(settings, cluster=cluster, name=name)
