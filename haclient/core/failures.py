"""Classification of failed attempts: socket errors, AMQP conditions and SASL outcomes as ``Failure``.

Sources: AMQP 1.0 part 2, sections 2.8.15 to 2.8.17 (error conditions; the redirect's info map); part 5,
section 5.3.3.6 (SASL codes); docs/internals/discovery.md, rules 4 to 6.
"""

from __future__ import annotations

import errno
import math
import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import proton
from proton import SASL

from haclient.cluster_url.endpoint import AMQP_PORT, AMQPS_PORT, Endpoint, Origin
from haclient.discovery.evidence import Failure, FailureReason
from haclient.engine.owner import CloseReason
from haclient.engine.sasl import claims, mechanisms
from haclient.engine.sasl.channel_binding import is_bound
from haclient.engine.sasl.client import ClientSasl
from haclient.engine.sasl.kerberos import KERBEROS
from haclient.engine.sasl.mechanisms import INTERCEPTED, UNPROVEN, WRONG_ITERATIONS
from haclient.engine.settings import Settings
from haclient.engine.wire.greeting import Greeting
from haclient.error_catalog.base import brief, quoted
from haclient.events import LossKind

REDIRECT = "amqp:connection:redirect"
INVALID_FIELD = "amqp:invalid-field"
ESTABLISHMENT_FAILED = "amqp:connection-establishment-failed"
UNAUTHORIZED = "amqp:unauthorized-access"
TOKEN_REFUSED = "token-refused"  # noqa: S105 - a code
REFUSED_BY_CLOSE = "unauthorized"
"""Error code if a peer refuses the user by a Close, after SASL succeeded."""
_MAX_PORT = 65535
_UNREACHABLE = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EHOSTDOWN}
)
# OpenSSL's reasons when the first bytes of a peer are not TLS.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"})
_PLAIN_PORT = "the peer does not speak TLS here: write amqp:// instead of amqps://, or take the TLS port"
# Such a broker accepts the connection, logs the reason, and closes without an AMQP frame.
_LIMIT = "a broker at its limit of connections (ActiveMQ: maximumConnections)"
_REFUSED = frozenset({FailureReason.AUTHENTICATION, FailureReason.AUTHENTICATION_TEMPORARY})
_NO_MECHANISM = "no SASL mechanism in common"


def from_socket_error(error: Exception, *, in_handshake: bool = False) -> Failure:
    """Classify a failed TCP connect, a failed TLS handshake, or a broken socket.

    :param in_handshake: whether the error happened during the TLS handshake.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure(kind=FailureReason.TLS_VERIFICATION, detail=error.verify_message or str(error))
    if isinstance(error, ssl.SSLError) and (reason := getattr(error, "reason", None)) in _NO_TLS:
        return _plain_port(str(reason).replace("_", " ").lower())
    if in_handshake and isinstance(error, ConnectionError | ssl.SSLEOFError):
        return Failure(
            kind=FailureReason.ENDED,
            detail="the peer closed the socket during the TLS handshake: "
            f"is it a plain port (write amqp://), or {_LIMIT}?",
            exact_code="no-answer",
        )
    if isinstance(error, ssl.SSLError):
        return Failure(kind=FailureReason.TLS_FAILED, detail=str(error))
    if isinstance(error, ConnectionRefusedError):
        return Failure(kind=FailureReason.REFUSED, detail="connection refused")
    if isinstance(error, TimeoutError):
        return Failure(kind=FailureReason.TIMED_OUT, detail="the TCP connection timed out")
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return Failure(kind=FailureReason.UNREACHABLE, detail=error.strerror or str(error))
    return Failure(kind=FailureReason.ENDED, detail=str(error) or type(error).__name__)


def from_close(condition: proton.Condition | None, source: Endpoint) -> Failure:
    """Classify the peer's Close (or End) by its condition."""
    if condition is None:
        return Failure(kind=FailureReason.CLOSED, detail="closed without a condition")
    info = condition.info if isinstance(condition.info, Mapping) else {}
    detail = brief(condition.name)
    if condition.description:
        detail += f": {brief(condition.description)}"
    retry_after = _retry_after(info)
    if condition.name == REDIRECT:
        target = redirect_target(info, source)
        if target is None:
            return Failure(
                kind=FailureReason.REDIRECT_REFUSED,
                condition=condition.name,
                detail="the redirect names no usable address",
                retry_after=retry_after,
            )
        return Failure(
            kind=FailureReason.REDIRECTED,
            condition=condition.name,
            detail=f"redirected to {target}",
            redirect=target,
            retry_after=retry_after,
        )
    return Failure(
        kind=FailureReason.CLOSED,
        condition=condition.name,
        detail=detail,
        retry_after=retry_after,
        id_in_use=condition.name == INVALID_FIELD and _names_container_id(info),
    )


def from_early_close(
    condition: proton.Condition | None, source: Endpoint, *, mechanism: str | None, fresh: bool
) -> Failure:
    """Classify the peer's Close before the session was usable.

    ``unauthorized-access`` then counts as a SASL failure: Artemis lets every user pass as ANONYMOUS, and
    refuses the user by the Close.  If the Close has a ``retry-after``, the peer asks the client to come back,
    and the Close is classified as usual.

    :param mechanism: the SASL mechanism that succeeded, for the ``Failure``; ``None`` if none was chosen.
    :param fresh: a callable supplied the credentials, and may supply others next time.
    """
    failure = from_close(condition, source)
    if failure.condition != UNAUTHORIZED or failure.retry_after is not None:
        return failure
    kind = FailureReason.AUTHENTICATION_TEMPORARY if fresh else FailureReason.AUTHENTICATION
    return replace(failure, kind=kind, mechanism=mechanism, exact_code=REFUSED_BY_CLOSE)


def redirect_target(info: Mapping[Any, Any], source: Endpoint) -> Endpoint | None:
    """Return the endpoint in a redirect's info map, or ``None`` if it names no usable one.

    Without a ``scheme`` the new connection uses TLS if the redirected one did.  Without a ``port`` it goes to
    the same port of the new host, or to the scheme's default port if the scheme differs.
    """
    fields = {str(key): value for key, value in info.items()}
    names = [fields.get(key) or "" for key in ("network-host", "hostname", "scheme")]
    if not all(isinstance(name, str) and "\0" not in name for name in names):
        return None
    network_host, server_name, scheme = map(str, names)
    host, scheme = (network_host or server_name).strip("[]").lower(), scheme.lower()
    tls = scheme in {"amqps", "amqp+ssl"} if scheme else source.tls
    port = fields.get("port")
    if port is None:
        port = source.port if tls == source.tls else (AMQPS_PORT if tls else AMQP_PORT)
    if not host or not isinstance(port, int) or isinstance(port, bool) or not 0 < port <= _MAX_PORT:
        return None
    return Endpoint(host, int(port), tls, server_name, Origin.REDIRECT)


def loss_kind(reason: CloseReason) -> LossKind:
    """Classify the end of a usable connection.

    Silence includes a socket whose TCP retransmissions timed out.
    """
    if reason.by_peer:
        return LossKind.CLOSE
    if reason.silent or isinstance(reason.error, TimeoutError):
        return LossKind.SILENCE
    return LossKind.CUT if reason.condition is None else LossKind.ERROR


def from_silence(*, tls: bool) -> Failure:
    """Describe a peer that accepted the TCP connection, and closed it before it sent a byte."""
    detail = "the peer closed the socket before it sent a byte: " + (
        f"is there a member behind it, or is it {_LIMIT}?"
        if tls
        else f"is it a TLS port (write amqps://), a proxy without a member behind it, or {_LIMIT}?"
    )
    return Failure(kind=FailureReason.ENDED, detail=detail, exact_code="no-answer")


def from_engine_error(
    condition: proton.Condition | None,
    sasl: ClientSasl | None,
    settings: Settings,
    greeting: Greeting | None,
    *,
    tls: bool,
    fresh: bool,
) -> Failure:
    """Classify a connection that proton found broken: SASL, TLS, framing, idle time-out.

    :param sasl: ``None`` without SASL.
    :param greeting: the bytes that the peer has sent; ``None`` after its Open.
    :param fresh: a callable supplied the credentials, and may supply others next time.
    """
    name = condition.name if condition else None
    text = (condition.description or "") if condition else ""
    if name == UNAUTHORIZED:
        return _sasl_failure(sasl, text, settings, tls=tls, fresh=fresh)
    foreign = greeting.foreign if greeting is not None else None
    if foreign is not None:
        return Failure(
            kind=FailureReason.NOT_AMQP, detail=foreign.text, condition=name, exact_code=foreign.code
        )
    if name == "amqp:connection:framing-error" and "aborted" not in text:
        return Failure(kind=FailureReason.NOT_AMQP, detail=text, condition=name)
    if not text and greeting is not None and not greeting.data:
        return from_silence(tls=tls)
    stage = "after its Open" if greeting is None else _sasl_stage(sasl)
    return Failure(kind=FailureReason.ENDED, detail=text or f"the peer closed the socket {stage}")


def without_open(failure: Failure, sasl: ClientSasl | None, hostname: str | None) -> Failure:
    """Add the likely cause if a peer ends the connection after SASL, without an Open.

    RabbitMQ 4 does so after three seconds if the virtual host does not exist or is forbidden to the user.

    :param hostname: the hostname in the client's Open, if it differs from the peer's.
    """
    if hostname is None or failure.kind is not FailureReason.ENDED or not _let_in(sasl):
        return failure
    asked = f"it let the user in and did not answer the Open: has it the virtual host {quoted(hostname)}, "
    return replace(failure, detail=f"{failure.detail}; {asked}and may this user use it?")


def of_token(failure: Failure, token: str, now: float) -> Failure:
    """Add the claims of a token that the peer has refused: one of them may be wrong.

    :param now: seconds since 1970.
    """
    if failure.kind not in _REFUSED or failure.mechanism is None:
        return failure
    described = claims.describe(token, now)
    detail = f"{failure.detail}; {described}" if described else failure.detail
    return replace(failure, detail=detail, exact_code=failure.exact_code or TOKEN_REFUSED)


def credentials_refused(sasl: ClientSasl | None) -> bool:
    """Return whether the peer refused the credentials for good in SASL."""
    return sasl is not None and sasl.mechanism is not None and sasl.outcome in (SASL.AUTH, SASL.PERM)


def _let_in(sasl: ClientSasl | None) -> bool:
    return sasl is not None and sasl.outcome == SASL.OK


def _sasl_stage(sasl: ClientSasl | None) -> str:
    return "after SASL" if _let_in(sasl) else "before SASL was done"


def _plain_port(text: str) -> Failure:
    return Failure(
        kind=FailureReason.TLS_FAILED, detail=f"{_PLAIN_PORT} (OpenSSL: {text})", exact_code="plain-port"
    )


def _sasl_failure(
    sasl: ClientSasl | None, text: str, settings: Settings, *, tls: bool, fresh: bool
) -> Failure:
    mechanism = None if sasl is None else sasl.mechanism
    temporary = sasl is not None and sasl.outcome in (SASL.TEMP, SASL.SYS)
    kind = FailureReason.AUTHENTICATION_TEMPORARY if temporary or fresh else FailureReason.AUTHENTICATION
    if mechanism is None:
        detail = _no_mechanism(settings, () if sasl is None else sasl.offered, tls=tls)
        return Failure(kind=kind, detail=detail, condition=UNAUTHORIZED, exact_code="no-common-mechanism")
    if text.startswith(UNPROVEN):
        detail = f"{text}: {mechanism} asks that of it"
        return Failure(kind=kind, detail=detail, condition=UNAUTHORIZED, exact_code="unproven-server")
    if text.startswith(INTERCEPTED):
        detail = f"{mechanism}: {text}"
        return Failure(kind=kind, detail=detail, condition=UNAUTHORIZED, exact_code="channel-binding")
    if text.startswith(WRONG_ITERATIONS):
        detail = f"{mechanism}: {text}"
        return Failure(kind=kind, detail=detail, condition=UNAUTHORIZED, exact_code="scram-iterations")
    detail = f"{mechanism}: {text or 'authentication failed'}"
    may_change = mechanism == KERBEROS  # another program renews tickets
    return Failure(
        kind=kind, detail=detail, condition=UNAUTHORIZED, mechanism=mechanism, may_change=may_change
    )


def _no_mechanism(settings: Settings, offered: tuple[str, ...], *, tls: bool) -> str:
    """Explain why no mechanism was chosen: the peer's offer, this client's mechanisms, and the remedy."""
    usable = mechanisms.usable(settings, tls=tls)
    if not offered:
        return f"{_NO_MECHANISM} with the peer; this client may use {_listed(usable)}"
    detail = f"{_NO_MECHANISM}: the peer offers {_listed(offered)}, and this client may use {_listed(usable)}"
    advice = _advice(settings, offered)
    return f"{detail}; {advice}" if advice else detail


def _advice(settings: Settings, offered: tuple[str, ...]) -> str:
    import difflib  # noqa: PLC0415 - for this error alone

    named = settings.mechanisms
    near = {
        name: difflib.get_close_matches(name, offered, n=1, cutoff=0.8)
        for name in named
        if name not in offered
    }
    if meant := [f"{found[0]} instead of {name}" for name, found in near.items() if found]:
        return f"did you mean {', '.join(meant)} (option sasl_mechanisms)?"
    if any(is_bound(name) and name in offered for name in named):
        return "SCRAM with channel binding (-PLUS) needs TLS, and a certificate that is not signed by Ed25519"
    if settings.bearer and not settings.plaintext and set(offered) & {"OAUTHBEARER", "XOAUTH2", "PLAIN"}:
        return "a token is not sent without TLS here (option sasl_plaintext)"
    if "PLAIN" in offered and not settings.plaintext and (settings.user is not None or "PLAIN" in named):
        return "PLAIN is not used without TLS here (option sasl_plaintext)"
    if named:
        return "let the peer offer one of these, or change the option sasl_mechanisms"
    if settings.user is None and not settings.bearer:
        return "write a user and a password, as in amqp://user:password@host"
    given = "the token" if settings.bearer else "the user and the password"
    return f"leave out {given}" if "ANONYMOUS" in offered else ""


def _listed(names: tuple[str, ...]) -> str:
    return " ".join(names) or "none"


def _names_container_id(info: Mapping[Any, Any]) -> bool:
    """Return whether ``invalid-field`` is the container id.

    ActiveMQ, Artemis and Qpid report an id in use this way.
    """
    value = {str(key): item for key, item in info.items()}.get("invalid-field")
    return isinstance(value, str) and str(value) == "container-id"


def _retry_after(info: Mapping[Any, Any]) -> float | None:
    """Return ``retry-after`` in seconds; ``None`` unless it is a finite number of milliseconds."""
    value = {str(key): item for key, item in info.items()}.get("retry-after")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return value / 1000
