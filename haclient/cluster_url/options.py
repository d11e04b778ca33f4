"""Every option of a cluster URL: the fields of ``Options`` are their only table.

Each field has the kind of its value, its default and one line of meaning.  The parser, the keyword overrides
and the formatter read the table.  The page docs/options.md and the signature in ``option_types`` are
generated from it, see ``reference``.  An option may be in the query of the URL, a keyword argument, a
variable ``HACLIENT_<NAME>``, or a key of a configuration file.

Rules:

- An unknown, repeated, malformed or out-of-range option is an error that names the option.
- An option that another client has under another name is mapped by that client's table, see
  ``foreign_options``.
- The options of ``Policy`` have the names and the defaults of ``Policy``.
- ``none`` means "no limit" or "not set", if an option has such a value.
- Values are percent-decoded already; a ``+`` is a plus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Literal, get_args
from urllib.parse import quote

from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.option_values import (
    ATTRIBUTES,
    BOOLEAN,
    DIRECTORY,
    HOST,
    MECHANISMS,
    MEMBERS,
    MOST_DELIVERIES,
    NAMESERVER,
    PATH,
    TEXT,
    Kind,
    as_text,
    one_of,
    seconds,
    whole,
)
from haclient.cluster_url.option_values import number as _number
from haclient.retry.policy import Policy, PushedMembers, Redirects, Standby
from haclient.retry.strategies import REMOVED, STRATEGIES, StrategyName

Delivery = Literal["at-least-once", "at-most-once"]

_POLICY = Policy()
_KEY = "option"
# Characters that need no escape in a value; "@" needs one, see authority.refuse_late_at.
_PLAIN = "/:,[]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutOption:
    """The entry of an option in the table, besides its name and default.

    :param optional: whether ``none`` is a value.
    :param in_signature: whether the generated signature has it; otherwise the factory declares it itself.
    """

    kind: Kind
    meaning: str
    optional: bool = False
    in_signature: bool = True


def _about(
    kind: Kind, meaning: str, *, optional: bool = False, in_signature: bool = True
) -> Mapping[str, AboutOption]:
    return {_KEY: AboutOption(kind=kind, meaning=meaning, optional=optional, in_signature=in_signature)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a cluster URL.  Times are seconds; ``None`` is no limit, or not set.

    ``parse_options`` and ``with_overrides`` make them and check the values; the constructor checks nothing.
    """

    # RFC 8305 section 5: the connection attempt delay is never below 10 ms.
    stagger: float = field(
        default=_POLICY.stagger,
        metadata=_about(
            seconds(0.01),
            "if TCP is not connected after this long, the client dials the next endpoint as well",
        ),
    )
    max_dials: int = field(
        default=_POLICY.max_dials,
        metadata=_about(whole(1, 1000, "attempts"), "attempts pending at once, for a whole factory"),
    )
    attempt_timeout: float = field(
        default=_POLICY.attempt_timeout,
        metadata=_about(
            seconds(0.01),
            "deadline of one attempt, from TCP connect to usable session. The time begins anew when the peer "
            "answers an attempt that this process dialled earlier: the peer is then slow, not dead. After an "
            "attempt with TCP and no answer the next has twice the time, up to 60 s",
        ),
    )
    stable_after: float = field(
        default=_POLICY.stable_after,
        metadata=_about(seconds(0), "a connection usable for this long resets the backoff"),
    )
    deadline: float | None = field(
        default=_POLICY.deadline,
        metadata=_about(
            seconds(0.001),
            "after a loss the client gives up when it has searched for this long",
            optional=True,
        ),
    )
    startup_deadline: float | None = field(
        default=_POLICY.startup_deadline,
        metadata=_about(
            seconds(0.001), "the first connect gives up when it has searched for this long", optional=True
        ),
    )
    refusal_timeout: float | None = field(
        default=_POLICY.refusal_timeout,
        metadata=_about(
            seconds(0),
            "after a loss the search ends when members have refused the virtual host, a field of the Open or"
            " the credentials for this long, see `docs/passive-members.md`",
            optional=True,
        ),
    )
    max_attempts: int | None = field(
        default=_POLICY.max_attempts,
        metadata=_about(
            whole(1, MOST_DELIVERIES, "attempts"),
            "the client gives up after this many attempts in one episode",
            optional=True,
        ),
    )
    max_redirects: int = field(
        default=_POLICY.max_redirects,
        metadata=_about(whole(0, 1000, "hops"), "hops of one redirect chain"),
    )
    redirects: Redirects = field(
        default=_POLICY.redirects,
        metadata=_about(
            one_of(get_args(Redirects)),
            "which targets of redirects, and which members that a broker announced, may get the credentials"
            " and the client certificate",
        ),
    )
    pushed_members: PushedMembers = field(
        default=_POLICY.pushed_members,
        metadata=_about(
            one_of(get_args(PushedMembers)), "effect of a `failover-server-list` on the known members"
        ),
    )
    backoff_base: float = field(
        default=_POLICY.backoff_base,
        metadata=_about(
            seconds(0.001), "first ceiling of the jittered delay after a loss, and between rounds"
        ),
    )
    backoff_factor: float = field(
        default=_POLICY.backoff_factor,
        metadata=_about(_number(1, 1000), "growth of that ceiling from one failure to the next"),
    )
    backoff_max: float = field(
        default=_POLICY.backoff_max,
        metadata=_about(seconds(0.001), "no delay between two rounds is longer"),
    )
    backoff_strategy: StrategyName = field(
        default=_POLICY.backoff_strategy,
        metadata=_about(
            one_of(tuple(STRATEGIES), REMOVED),
            "how delays are chosen ([strategies](storms.md#delays))",
        ),
    )
    max_retry_after: float = field(
        default=_POLICY.max_retry_after,
        metadata=_about(
            seconds(0),
            "total delay that servers may ask for since the last stable connection",
        ),
    )
    max_spread: float = field(
        default=_POLICY.max_spread,
        metadata=_about(
            seconds(0),
            "if the primary announced a large fleet: longest time over which clients spread their dials after"
            " a loss; 0 is off ([the fleet](storms.md#the-fleet))",
        ),
    )
    dr: tuple[str, ...] | None = field(
        default=_POLICY.dr,
        metadata=_about(
            MEMBERS, "members of a second site, as `host:port,host:port`, see `docs/sites.md`", optional=True
        ),
    )
    dr_after: float = field(
        default=_POLICY.dr_after,
        metadata=_about(
            seconds(0), "if no primary is found for this long, the client dials the other site as well"
        ),
    )
    standby: Standby = field(
        default=_POLICY.standby,
        metadata=_about(
            one_of(get_args(Standby)),
            "when to ask a passive member to hold the connection until it serves, see `docs/storms.md`",
        ),
    )
    park_timeout: float = field(
        default=_POLICY.park_timeout,
        metadata=_about(
            seconds(0.01),
            "how long a search waits for a parked connection before it starts rounds again",
        ),
    )
    # Open carries twice this as milliseconds in 32 bits; a day is far below that limit.
    heartbeat: float = field(
        default=10.0,
        metadata=_about(
            seconds(0.01, 86400, or_zero=True),
            "a peer that is silent for this long is lost; both sides send frames often enough; 0 is off;  "
            "RabbitMQ 4 needs at least 1",
        ),
    )
    delivery: Delivery = field(
        default="at-least-once",
        metadata=_about(
            one_of(get_args(Delivery)),
            "if a connection is lost, send its unsettled messages again, or not",
        ),
    )
    duplicate_detection: bool = field(
        default=True,
        metadata=_about(BOOLEAN, "mark messages with an id, by which a broker drops second copies"),
    )
    window: int = field(
        default=1000,
        metadata=_about(
            whole(1, MOST_DELIVERIES, "messages"), "unsettled messages of one sender before it waits"
        ),
    )
    credit: int = field(
        default=100,
        metadata=_about(whole(1, MOST_DELIVERIES, "messages"), "messages a receiver asks for in advance"),
    )
    # 512 is MIN-MAX-FRAME-SIZE, AMQP 1.0 part 2, section 2.4.1; 64 KiB is common among brokers.
    max_frame_size: int = field(
        default=65536,
        metadata=_about(whole(512, 2**32 - 1, "bytes"), "largest frame this client takes"),
    )
    client_id: str | None = field(
        default=None,
        metadata=_about(
            TEXT,
            "AMQP container id of every connection; none: a generated id, with a number for each connection",
            optional=True,
        ),
    )
    vhost: str | None = field(
        default=None,
        metadata=_about(TEXT, "hostname sent in Open; none: the host of the URL", optional=True),
    )
    sasl_mechanisms: tuple[str, ...] | None = field(
        default=None,
        metadata=_about(
            MECHANISMS,
            "SASL mechanisms to use, separated by comma, space or +; none: any safe one that the peer "
            "offers; `GSSAPI` needs the extra `kerberos`",
            optional=True,
        ),
    )
    sasl_plaintext: bool = field(
        default=True,
        metadata=_about(
            BOOLEAN,
            "PLAIN may be used without TLS (`amqp://`), until a member offers SCRAM",
        ),
    )
    tls_ca: str | None = field(
        default=None,
        metadata=_about(PATH, "certificates to trust, PEM; none: the system's", optional=True),
    )
    tls_cert: str | None = field(
        default=None,
        metadata=_about(PATH, "certificate of this client, PEM", optional=True),
    )
    tls_key: str | None = field(
        default=None,
        metadata=_about(PATH, "key of that certificate, PEM; none: it is in `tls_cert`", optional=True),
    )
    tls_verify: bool = field(
        default=True,
        metadata=_about(BOOLEAN, "check the peer's certificate and its name"),
    )
    tls_server_name: str | None = field(
        default=None,
        metadata=_about(
            HOST, "name that the certificate must carry; none: the host of the URL", optional=True
        ),
    )
    nameserver: str | None = field(
        default=None,
        metadata=_about(
            NAMESERVER,
            "DNS server, as host, host:port or [v6]:port; none: the system's",
            optional=True,
        ),
    )
    dns_timeout: float = field(
        default=2.0,
        metadata=_about(seconds(0.01), "longest wait for DNS"),
    )
    send_timeout: float | None = field(
        default=None,
        metadata=_about(seconds(0.001), "timeout of a send without the argument `timeout`", optional=True),
    )
    # The same as proton's BlockingConnection.
    call_timeout: float | None = field(
        default=60.0,
        metadata=_about(
            seconds(0.001),
            "timeout of a call that creates a sender or receiver, or flushes, without the argument `timeout`",
            optional=True,
        ),
    )
    # Artemis counts the consumer of a half-open connection for 60 s by default; this is twice that.
    reattach_timeout: float = field(
        default=120.0,
        metadata=_about(
            seconds(0),
            "how long after a loss the client keeps trying to attach a link that the primary refuses for now"
            " (30 s at most after `amqp:not-found`); 0 is off",
        ),
    )
    close_timeout: float = field(
        default=0.5,
        metadata=_about(seconds(0), "how long close waits for the peer's answer"),
    )
    telemetry: str | None = field(
        default=None,
        metadata=_about(
            DIRECTORY,
            "directory for the events of connections, see `docs/telemetry.md`; empty: nowhere;"
            " not given: the directory in the variable `HACLIENT_TELEMETRY`",
            in_signature=False,
        ),
    )
    telemetry_attributes: str | None = field(
        default=None,
        metadata=_about(
            ATTRIBUTES,
            "attributes by which telemetry is grouped, as `host.name=a,cloud.region=eu`; they win over"
            " `OTEL_RESOURCE_ATTRIBUTES`; see `docs/telemetry.md`",
            optional=True,
        ),
    )

    def policy(self) -> Policy:
        """Return the options that discovery uses."""
        return Policy(**{each.name: getattr(self, each.name) for each in fields(Policy)})


_FIELDS = MappingProxyType({each.name: each for each in fields(Options)})
ABOUT: Mapping[str, AboutOption] = MappingProxyType(
    {name: each.metadata[_KEY] for name, each in _FIELDS.items()}
)
OPTION_NAMES = tuple(_FIELDS)


def parse_options(
    pairs: Iterable[tuple[str, str]], written: Mapping[str, str] = MappingProxyType({})
) -> Options:
    """Return options for names and decoded texts.

    :param written: the user's spelling of names, for errors, if it differs.
    :raises ClusterURLError: names the option at fault.
    """
    values: dict[str, object] = {}
    for name, text in pairs:
        spelt = written.get(name, name)
        if name in values:
            raise ClusterURLError(f"option {spelt!r} is given twice", spelt)
        values[name] = _value(name, text, spelt)
    return _checked(Options(), values)


def with_overrides(options: Options, **overrides: object) -> Options:
    """Return the options with some replaced, by texts as in a URL or by Python values.

    :raises ClusterURLError: names the option at fault.
    """
    return _checked(options, {name: _value(name, value, name) for name, value in overrides.items()})


def _quoted(text: str) -> str:
    # After a comma, "x://" would start the URI of another member.
    return quote(text, safe=_PLAIN).replace("://", "%3A//")


def format_options(options: Options) -> str:
    """Return the options that differ from their defaults, as the query of a URL; empty if none does."""
    values = {name: getattr(options, name) for name in OPTION_NAMES}
    return "&".join(
        f"{name}={_quoted(as_text(value))}"
        for name, value in values.items()
        if value != _FIELDS[name].default
    )


def refuse_unknown(name: str, spelt: str) -> ClusterURLError:
    """Return the error for an unknown option, with the most similar known one."""
    import difflib  # noqa: PLC0415 - for this error alone

    near = difflib.get_close_matches(name.lower().replace("-", "_"), OPTION_NAMES, n=1)
    suggestion = f"; did you mean {near[0]!r}?" if near else ""
    return ClusterURLError(f"unknown option {spelt!r}{suggestion}", spelt)


def _value(name: str, value: object, spelt: str) -> object:
    about = ABOUT.get(name)
    if about is None:
        raise refuse_unknown(name, spelt)
    try:
        return _parsed(about, value)
    except ValueError as error:
        message = f"option {spelt!r}: {error}"
    raise ClusterURLError(message, spelt)


def _parsed(about: AboutOption, value: object) -> object:
    if value is None and not about.optional:
        advice = '; write "none"' if "none" in about.kind.choices else ""
        raise ValueError(f"None is not a value of it{advice}")
    text = as_text(value)
    return None if about.optional and text.lower() == "none" else about.kind.parse(text)


def _checked(options: Options, values: Mapping[str, object]) -> Options:
    changed = replace(options, **dict(values))  # type: ignore[arg-type]  # each value came from its field's own parser
    if changed.tls_key and not changed.tls_cert:
        raise ClusterURLError("option 'tls_key': there is no tls_cert that it belongs to", "tls_key")
    return changed
