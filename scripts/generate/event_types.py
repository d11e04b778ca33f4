"""The types of lines: the keys and values of each.  Schemas and documentation are made from this.

Rules
-----
* A key is required if every writer of this version has written it on every line of the type.  Hosts and
  descriptions are never required, because ``redact`` omits any that contain a password.
* The values of a key are this release's.  Later releases of the same version may add some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from haclient.retry import strategies
from haclient.telemetry.schema import DATA, ENVELOPE, RESOURCE, Key, Kind

FAILURES = (
    "unresolved",
    "refused",
    "unreachable",
    "timed-out",
    "ended",
    "not-amqp",
    "tls-failed",
    "tls-verification",
    "authentication",
    "authentication-temporary",
    "closed",
    "redirected",
    "redirect-refused",
    "stale-primary",
    "made-room",
    "lost-race",
    "stopped",
)
LOSSES = ("close", "cut", "silence", "error")
STRATEGIES = (*strategies.STRATEGIES, *strategies.REMOVED)  # files of earlier versions have the latter
ROLES = ("connecting", "catchup", "ready", "recovering", "passive", "primary")
ANOMALIES = ("duplicates", "gaps", "created", "parked", "taken", "copies", "gone", "malformed")

_ENDPOINT = ("server_address", "server_port")
RESOURCE_COLUMNS = tuple(key.column for key in RESOURCE if key.column not in {"service", "instance"})
CLIENT = (
    *("client_id", "service", "instance", "connection", "sequence", "monotonic"),
    *("outage_id", "outage"),
)
MEMBER = ("service", "instance", "cluster", "member", "sequence", "monotonic", "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """One type of lines; keys by their columns.

    :param required: keys of ``data`` that every line of it has.
    :param optional: keys of ``data`` that a line of it may also have.
    :param values: the values of keys that have only a few.
    :param subject: whether its lines have a subject.
    """

    kind: Kind
    required: tuple[str, ...]
    optional: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]
    subject: bool = True

    def __post_init__(self) -> None:
        unknown = {*self.required, *self.optional, *self.values} - COLUMNS.keys()
        if unknown or {*self.required} & {*self.optional}:
            raise ValueError(f"{self.kind}: {sorted(unknown)}, or a key twice")


COLUMNS: Mapping[str, Key] = MappingProxyType({key.column: key for key in DATA})


def _client(
    kind: Kind, *required: str, optional: tuple[str, ...] = (), **values: tuple[str, ...]
) -> EventType:
    others = (*RESOURCE_COLUMNS, "cluster", *optional)
    return EventType(kind=kind, required=(*CLIENT, *required), optional=others, values=values)


def _member(
    kind: Kind, *required: str, optional: tuple[str, ...] = (), **values: tuple[str, ...]
) -> EventType:
    others = (*RESOURCE_COLUMNS, "generation", *_ENDPOINT, *optional)
    known = {"role": ROLES, **values}
    return EventType(kind=kind, required=(*MEMBER, *required), optional=others, values=known)


_ERROR_KEYS = ("error_type", "condition", "reason")

EVENT_TYPES = (
    _client(
        Kind.ATTEMPT,
        *("server_port", "attempt"),
        optional=("server_address", "attempt_duration", *_ERROR_KEYS, "retry_after", "generation"),
        error_type=FAILURES,
    ),
    _client(
        Kind.REDIRECT,
        *("server_port", "redirect_port", "redirect_followed"),
        optional=("server_address", "redirect_address", "reason"),
    ),
    _client(
        Kind.CONNECTED,
        *("server_port", "outage_duration", "attempt", "replayed"),
        optional=("server_address", "generation"),
    ),
    _client(
        Kind.LOST,
        *("server_port", "unsettled"),
        optional=("server_address", "condition", "reason", "close_kind", "generation"),
        close_kind=LOSSES,
    ),
    _client(
        Kind.BACKOFF,
        *("backoff_base", "backoff_delay", "backoff_round", "backoff_strategy"),
        optional=("backoff_max", "backoff_floor", "retry_after"),
        backoff_strategy=STRATEGIES,
    ),
    _client(Kind.GAVE_UP, "outage_duration", "attempt", optional=_ERROR_KEYS, error_type=FAILURES),
    _client(Kind.CLOSED, optional=_ENDPOINT),
    _client(Kind.ALIVE, "state", optional=(*_ENDPOINT, "generation"), state=("connected", "reconnecting")),
    _client(Kind.UNSETTLED, "unsettled", optional=("queue",)),
    _client(Kind.GENERATIONS_FORGOTTEN, "server_port", optional=("server_address", "generation")),
    EventType(
        kind=Kind.DROPPED,
        required=("service", "instance", "monotonic", "dropped"),
        optional=RESOURCE_COLUMNS,
        values={},
        subject=False,
    ),
    _member(Kind.MEMBER_ADMITTED, optional=("client_id",)),
    _member(
        Kind.MEMBER_REFUSED,
        *("error_type", "condition"),
        optional=("client_id", "retry_after"),
        error_type=FAILURES,
    ),
    _member(Kind.MEMBER_PARKED, optional=("client_id",)),
    _member(Kind.MEMBER_UNPARKED, optional=("client_id", "error_type", "condition"), error_type=FAILURES),
    _member(Kind.MEMBER_ROLE),
    _member(
        Kind.MEMBER_SITE,
        "site_sequence",
        optional=(
            *("site_link", "state", "site_lag_events", "site_lag_seconds"),
            *("site_duplicates", "site_gaps"),
        ),
    ),
    _member(
        Kind.MEMBER_ANOMALY,
        *("site_link", "site_case", "site_count"),
        optional=("site_sequence",),
        site_case=ANOMALIES,
    ),
    _member(Kind.MEMBER_DISK, "state", state=("ok", "warn", "hold", "stop")),
    _member(Kind.MEMBER_SET_ASIDE, "state", "replica", "queue", state=("set-aside", "copied")),
)

REQUIRED_ENVELOPE = tuple(key.name for key in ENVELOPE if key.name != "subject")
