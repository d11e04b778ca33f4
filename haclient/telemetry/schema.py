"""The telemetry format: every key of a line, its column, type, unit and meaning.  The one place for it.

A line is a CloudEvent in JSON: the envelope on top, everything else in ``data``, under OpenTelemetry's
attribute names if they exist.  Readers ignore unknown keys, and read a missing key as null, so that older and
newer lines are read alike.  ``ENVELOPE`` and ``DATA`` define the writer's keys, the Spark schema and the
documentation's table.

Sources: CloudEvents 1.0; OpenTelemetry semantic conventions 1.27 (messaging, service, server, error, and the
resource's: deployment, host, cloud, k8s).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

VERSION = 1
DATASCHEMA = f"urn:haclient:telemetry:{VERSION}"


class Kind(enum.StrEnum):
    """The ``type`` of a line."""

    ATTEMPT = "haclient.connection.attempt"
    REDIRECT = "haclient.connection.redirect"
    CONNECTED = "haclient.connection.connected"
    LOST = "haclient.connection.lost"
    BACKOFF = "haclient.connection.backoff"
    GAVE_UP = "haclient.connection.gave_up"
    CLOSED = "haclient.connection.closed"
    ALIVE = "haclient.connection.alive"
    UNSETTLED = "haclient.connection.unsettled"
    GENERATIONS_FORGOTTEN = "haclient.connection.generations_forgotten"
    DROPPED = "haclient.telemetry.dropped"
    MEMBER_ADMITTED = "haclient.member.admitted"
    MEMBER_REFUSED = "haclient.member.refused"
    MEMBER_PARKED = "haclient.member.parked"
    MEMBER_UNPARKED = "haclient.member.unparked"
    MEMBER_ROLE = "haclient.member.role"
    MEMBER_SITE = "haclient.member.site"
    MEMBER_ANOMALY = "haclient.member.anomaly"
    MEMBER_DISK = "haclient.member.disk"
    MEMBER_SET_ASIDE = "haclient.member.set_aside"


class Reason(enum.StrEnum):
    """The fault of a line; all before ``VIOLATION`` are also reasons of the quarantine."""

    NOT_JSON = "not JSON, or cut short"
    OTHER_TYPE = "a value of another type than the schema's"
    NO_ID = "no id or no type"
    NO_TIME = "no time, or not one of RFC 3339"
    OTHER_VERSION = "a version of the format that this release does not know"
    IMPLAUSIBLE = "a time before 2000, or more than a day ahead of the time when it was read"
    CUT_SHORT = "the compressed file is cut short or damaged; lines are missing"
    GONE = "the file went away before it was read; lines may be missing"
    VIOLATION = "a reader takes it, but it is not as the schema of its type says"
    TOO_LONG = "longer than a line may be"


NO_FAILURES = ("redirected", "lost-race", "made-room", "stopped")
"""Values of ``error.type`` that are no failures: a passive member redirected the client, or the client itself
ended the attempt.  A search continues after them.
"""


class Type(enum.StrEnum):
    """The type of a value, by its name in Spark SQL."""

    STRING = "string"
    LONG = "bigint"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a line.

    :param name: as written; a key of ``DATA`` is inside ``data``.
    :param column: its name in the analysis.
    :param unit: of a number; empty for none.
    """

    name: str
    column: str
    type: Type
    meaning: str
    unit: str = ""


ENVELOPE = (
    Key("specversion", "specversion", Type.STRING, "version of CloudEvents: 1.0"),
    Key(
        "id",
        "event_id",
        Type.STRING,
        "id of the line (UUID, version 7); a second line of the same source and id is a duplicate",
    ),
    Key(
        "source",
        "source",
        Type.STRING,
        "the process that wrote the line: `/haclient/` or `/broker_stub/` and its instance id",
    ),
    Key("type", "type", Type.STRING, "type of the event"),
    Key(
        "time",
        "time",
        Type.TIMESTAMP,
        "time of the event by the wall clock of the writer, RFC 3339 in UTC with microseconds",
    ),
    Key(
        "subject",
        "subject",
        Type.STRING,
        "the connection: client id, `/` and number of the connection. For a member: the member's name",
    ),
    Key("dataschema", "dataschema", Type.STRING, f"version of this format: `{DATASCHEMA}`"),
)

RESOURCE = (
    Key("service.name", "service", Type.STRING, "name of the application (`OTEL_SERVICE_NAME`)"),
    Key(
        "service.instance.id",
        "instance",
        Type.STRING,
        "id of the application's instance; default: id of the process, new at each start and after a fork",
    ),
    Key("service.version", "service_version", Type.STRING, "version of the application"),
    Key("haclient.version", "client_version", Type.STRING, "version of haclient that wrote the line"),
    Key("deployment.environment.name", "environment", Type.STRING, "such as `production` or `staging`"),
    Key("host.name", "host", Type.STRING, "name of the machine"),
    Key("cloud.region", "region", Type.STRING, "region of the cloud"),
    Key("cloud.availability_zone", "zone", Type.STRING, "zone in the region"),
    *(
        Key(f"k8s.{what}.name", f"k8s_{what}", Type.STRING, f"Kubernetes: name of the {what}")
        for what in (
            "cluster",
            "namespace",
            "deployment",
            "replicaset",
            "statefulset",
            "daemonset",
            "job",
            "cronjob",
            "node",
            "pod",
            "container",
        )
    ),
)
"""OpenTelemetry's resource attributes, by which a fleet is grouped; the same on every line of a process."""

DATA = (
    Key(
        "messaging.client.id", "client_id", Type.STRING, "client id; the client's container ids begin with it"
    ),
    *RESOURCE,
    Key(
        "haclient.connection.number",
        "connection",
        Type.LONG,
        "number of the connection in its factory, from 1",
    ),
    Key(
        "haclient.sequence",
        "sequence",
        Type.LONG,
        "number of the line in its connection, from 1; a gap is lost telemetry",
    ),
    Key("haclient.monotonic", "monotonic", Type.DOUBLE, "monotonic clock of the process", "s"),
    Key(
        "haclient.cluster",
        "cluster",
        Type.STRING,
        "name of the cluster, as its primary reports it; null until known",
    ),
    Key(
        "haclient.outage.id",
        "outage_id",
        Type.STRING,
        "id of the episode: client id, connection, number of the episode",
    ),
    Key(
        "haclient.outage.number",
        "outage",
        Type.LONG,
        "number of the episode in its connection; 1 is the first connect",
    ),
    Key(
        "haclient.outage.duration",
        "outage_duration",
        Type.DOUBLE,
        "on `connected` and `gave_up`: time since the episode began",
        "s",
    ),
    Key(
        "haclient.attempt.number",
        "attempt",
        Type.LONG,
        "on `attempt`: number of the attempt in its episode; 0 if the name had no address, so that there was "
        "no dial. On `connected` and `gave_up`: attempts of the episode",
    ),
    Key(
        "haclient.attempt.duration",
        "attempt_duration",
        Type.DOUBLE,
        "from the dial to the end of the attempt",
        "s",
    ),
    Key("server.address", "server_address", Type.STRING, "host of the endpoint"),
    Key("server.port", "server_port", Type.LONG, "port of the endpoint"),
    Key(
        "error.type",
        "error_type",
        Type.STRING,
        "kind of failure; null on an attempt that succeeded",
    ),
    Key("haclient.close.condition", "condition", Type.STRING, "AMQP condition of the close"),
    Key(
        "haclient.close.reason",
        "reason",
        Type.STRING,
        "description of the close, without data of the application",
    ),
    Key(
        "haclient.close.kind",
        "close_kind",
        Type.STRING,
        "how the connection was lost: by a Close of the broker, a cut, a silence, or an error after which "
        "the client ended it",
    ),
    Key("haclient.backoff.base", "backoff_base", Type.DOUBLE, "upper bound of the delay", "s"),
    Key(
        "haclient.backoff.floor",
        "backoff_floor",
        Type.DOUBLE,
        "lower bound of the delay, which was drawn evenly between floor and base. Equal to the base if "
        "nothing was drawn. Null if another rule of the search set the delay",
        "s",
    ),
    Key("haclient.backoff.delay", "backoff_delay", Type.DOUBLE, "the delay that was drawn", "s"),
    Key(
        "haclient.backoff.round",
        "backoff_round",
        Type.LONG,
        "number of the round that failed before the delay; 0 right after a loss",
    ),
    Key(
        "haclient.backoff.strategy", "backoff_strategy", Type.STRING, "value of the option `backoff_strategy`"
    ),
    Key("haclient.backoff.max", "backoff_max", Type.DOUBLE, "value of the option `backoff_max`", "s"),
    Key("haclient.retry_after", "retry_after", Type.DOUBLE, "delay that the server asked for", "s"),
    Key("haclient.redirect.address", "redirect_address", Type.STRING, "host that a passive member named"),
    Key("haclient.redirect.port", "redirect_port", Type.LONG, "port that a passive member named"),
    Key(
        "haclient.redirect.followed",
        "redirect_followed",
        Type.BOOLEAN,
        "whether the client tries that member",
    ),
    Key("haclient.generation", "generation", Type.LONG, "generation of the primary"),
    Key(
        "haclient.unsettled",
        "unsettled",
        Type.LONG,
        "on `lost`: messages that were sent and not settled at the loss. On `unsettled`: messages without an "
        "outcome",
        "messages",
    ),
    Key("haclient.replayed", "replayed", Type.LONG, "messages sent again after the loss", "messages"),
    Key(
        "haclient.state",
        "state",
        Type.STRING,
        "on `alive`: state of the connection, `connected` or `reconnecting`. On `disk`: level of the disk. "
        "On `set_aside`: state of the queue, `set-aside` or `copied`",
    ),
    Key(
        "haclient.dropped",
        "dropped",
        Type.LONG,
        "lines that were dropped since the last line of this type",
        "lines",
    ),
    Key("haclient.member.name", "member", Type.STRING, "name of the member that writes"),
    Key("haclient.member.role", "role", Type.STRING, "current role of the member"),
    Key("haclient.replica.name", "replica", Type.STRING, "name of the backup that a line is about"),
    Key("messaging.destination.name", "queue", Type.STRING, "name of the queue that a line is about"),
    Key("haclient.site.link", "site_link", Type.STRING, "name of a link; null for the events of this site"),
    Key(
        "haclient.site.sequence",
        "site_sequence",
        Type.LONG,
        "sequence of the last event that this site sent, or that the link applied. On `anomaly`: of the last "
        "event of the case",
    ),
    Key(
        "haclient.site.lag.events",
        "site_lag_events",
        Type.LONG,
        "events that the other site has not settled",
        "events",
    ),
    Key(
        "haclient.site.lag.seconds",
        "site_lag_seconds",
        Type.DOUBLE,
        "age of the oldest event that the other site has not settled. For a link: age of its last event when "
        "it was applied",
        "s",
    ),
    Key("haclient.site.duplicates", "site_duplicates", Type.LONG, "duplicate events, which were dropped"),
    Key("haclient.site.gaps", "site_gaps", Type.LONG, "gaps in the sequences"),
    Key("haclient.site.case", "site_case", Type.STRING, "kind of the anomaly in another site's events"),
    Key(
        "haclient.site.count",
        "site_count",
        Type.LONG,
        "number of events of that case since its last line",
        "events",
    ),
)

KEYS = (*ENVELOPE, *DATA)

FORMER_KEYS: Mapping[str, str] = {"haclient.retry_after": "haclient.hint"}
"""Keys of ``DATA`` that were renamed, with their former names: readers accept both."""

FORMER_COLUMNS: Mapping[str, str] = {"retry_after": "hint"}
"""Columns of those keys, with their former names in stored tables."""

FORMER_KINDS: Mapping[str, Kind] = {"haclient.member.odd_event": Kind.MEMBER_ANOMALY}
"""Former names of types, with their current types."""


def ddl() -> str:
    """Return the schema of a line for Spark: ``spark.read.schema(ddl())``; times are text there.

    It includes the former names of keys.
    """
    types = {key.name: key.type for key in DATA}
    types |= {former: types[name] for name, former in FORMER_KEYS.items()}
    inner = ", ".join(f"`{name}`: {type_}" for name, type_ in types.items())
    outer = ", ".join(f"{key.name} STRING" for key in ENVELOPE)
    return f"{outer}, data STRUCT<{inner}>"


def markdown_table() -> str:
    """Return the documentation's table of all keys."""
    rows = ["| key | column | type | unit | meaning |", "|---|---|---|---|---|"]
    for key in KEYS:
        where = key.name if key in ENVELOPE else f"data.{key.name}"
        rows.append(f"| `{where}` | `{key.column}` | {key.type} | {key.unit} | {key.meaning} |")
    return "\n".join(rows) + "\n"
