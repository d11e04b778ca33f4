"""The meaning of a failed attempt, as tables."""

from __future__ import annotations

import errno
import math
import ssl
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.core import failures
from haclient.discovery.evidence import FailureReason
from haclient.engine.owner import CloseReason
from haclient.events import LossKind

PLAIN = Endpoint("a", 5672)
SECURE = Endpoint("a", 5671, tls=True)

EXPIRED = ssl.SSLCertVerificationError(1, "certificate verify failed")
EXPIRED.verify_message = "certificate has expired"

SOCKET_ERRORS = [
    (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), FailureReason.REFUSED),
    (ConnectionResetError(errno.ECONNRESET, "reset"), FailureReason.ENDED),
    (BrokenPipeError(errno.EPIPE, "broken"), FailureReason.ENDED),
    (TimeoutError(errno.ETIMEDOUT, "timed out"), FailureReason.TIMED_OUT),
    (OSError(errno.ENETUNREACH, "Network is unreachable"), FailureReason.UNREACHABLE),
    (OSError(errno.EHOSTUNREACH, "No route to host"), FailureReason.UNREACHABLE),
    (OSError(errno.EADDRNOTAVAIL, "Cannot assign"), FailureReason.UNREACHABLE),
    (ssl.SSLError(1, "wrong version number"), FailureReason.TLS_FAILED),
    (EXPIRED, FailureReason.TLS_VERIFICATION),
]


@pytest.mark.parametrize(("error", "kind"), SOCKET_ERRORS, ids=str)
def test_a_socket_error_is_distinguished(error: Exception, kind: FailureReason) -> None:
    failure = failures.from_socket_error(error)
    assert failure.kind is kind
    assert failure.detail


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (CloseReason(by_peer=True), LossKind.CLOSE),
        (CloseReason(proton.Condition("amqp:connection:forced"), by_peer=True), LossKind.CLOSE),
        (CloseReason(), LossKind.CUT),
        (CloseReason(error=ConnectionResetError(errno.ECONNRESET, "reset")), LossKind.CUT),
        (CloseReason(error=OSError(errno.ETIMEDOUT, "TCP repeats in vain")), LossKind.SILENCE),
        (CloseReason(proton.Condition("amqp:resource-limit-exceeded"), silent=True), LossKind.SILENCE),
        (CloseReason(proton.Condition("amqp:resource-limit-exceeded"), by_peer=True), LossKind.CLOSE),
        (CloseReason(proton.Condition("amqp:connection:framing-error")), LossKind.ERROR),
    ],
    ids=str,
)
def test_the_end_of_a_usable_connection_is_classified(reason: CloseReason, kind: LossKind) -> None:
    assert failures.loss_kind(reason) is kind


def close(name: str = failures.REDIRECT, **info: Any) -> proton.Condition:
    return proton.Condition(name, None, {proton.symbol(key.replace("_", "-")): v for key, v in info.items()})


REDIRECTS = [
    (PLAIN, {"network_host": "b"}, Endpoint("b", 5672)),
    (PLAIN, {"network_host": "b", "port": 5673}, Endpoint("b", 5673)),
    (PLAIN, {"network_host": "B.Example", "port": proton.uint(1)}, Endpoint("b.example", 1)),
    (PLAIN, {"network_host": "::1", "port": 1}, Endpoint("::1", 1)),
    (PLAIN, {"network_host": "[::1]", "port": 1}, Endpoint("::1", 1)),
    (PLAIN, {"hostname": "b"}, Endpoint("b", 5672)),
    (PLAIN, {"network_host": "b", "scheme": "amqps"}, Endpoint("b", 5671, tls=True)),
    (SECURE, {"network_host": "b"}, Endpoint("b", 5671, tls=True)),
    (SECURE, {"network_host": "b", "scheme": "amqp"}, Endpoint("b", 5672)),
    (Endpoint("a", 9999), {"network_host": "b"}, Endpoint("b", 9999)),
    (PLAIN, {}, None),
    (PLAIN, {"port": 5672}, None),
    (PLAIN, {"network_host": ""}, None),
    (PLAIN, {"network_host": "b", "port": 0}, None),
    (PLAIN, {"network_host": "b", "port": 65536}, None),
    (PLAIN, {"network_host": "b", "port": -1}, None),
    (PLAIN, {"network_host": "b", "port": True}, None),
    (PLAIN, {"network_host": "b", "port": "5672"}, None),
]


@pytest.mark.parametrize(("source", "info", "target"), REDIRECTS)
def test_a_redirect_names_an_endpoint_or_none(
    source: Endpoint, info: dict[str, Any], target: Endpoint | None
) -> None:
    failure = failures.from_close(close(**info), source)
    assert failure.redirect == target
    assert failure.kind is (FailureReason.REDIRECT_REFUSED if target is None else FailureReason.REDIRECTED)
    if target is not None:
        assert failure.redirect is not None
        assert failure.redirect.origin is Origin.REDIRECT


def test_the_hostname_of_a_redirect_is_the_name_to_verify() -> None:
    condition = close(network_host="10.0.0.7", hostname="broker-b.example", port=5671)
    target = failures.from_close(condition, SECURE).redirect
    assert target is not None
    assert (target.host, target.tls_name) == ("10.0.0.7", "broker-b.example")


EARLY_CLOSES = [
    (failures.UNAUTHORIZED, False, None, FailureReason.AUTHENTICATION),
    (failures.UNAUTHORIZED, True, None, FailureReason.AUTHENTICATION_TEMPORARY),
    (failures.UNAUTHORIZED, False, 1000, FailureReason.CLOSED),
    (failures.UNAUTHORIZED, True, 1000, FailureReason.CLOSED),
    ("amqp:not-allowed", False, None, FailureReason.CLOSED),
    ("amqp:connection:forced", True, None, FailureReason.CLOSED),
]


@pytest.mark.parametrize(("name", "fresh", "retry_after", "kind"), EARLY_CLOSES)
def test_unauthorized_access_before_the_session_is_usable_is_about_the_user(
    *, name: str, fresh: bool, retry_after: int | None, kind: FailureReason
) -> None:
    condition = close(name, retry_after=retry_after)
    failure = failures.from_early_close(condition, PLAIN, mechanism="PLAIN", fresh=fresh)
    assert (failure.kind, failure.condition) == (kind, name)
    assert failure.mechanism == (None if kind is FailureReason.CLOSED else "PLAIN")
    assert failures.from_close(condition, PLAIN).kind is FailureReason.CLOSED, "of a connection in use"


RETRY_AFTER_VALUES = [
    (0, 0.0),
    (1500, 1.5),
    (proton.uint(250), 0.25),
    (2.5, 0.0025),
    (None, None),
    (-1, None),
    (math.nan, None),
    (math.inf, None),
    (True, None),
    ("1500", None),
    ([], None),
]


@pytest.mark.parametrize(("value", "seconds"), RETRY_AFTER_VALUES)
@pytest.mark.parametrize("name", ["amqp:connection:forced", failures.REDIRECT])
def test_retry_after_is_milliseconds_or_nothing(name: str, value: object, seconds: float | None) -> None:
    failure = failures.from_close(close(name, network_host="b", retry_after=value), PLAIN)
    assert failure.retry_after == seconds


@pytest.mark.parametrize("info", [None, [], "text", 7])
def test_an_info_that_is_no_map_is_ignored(info: Any) -> None:
    condition = proton.Condition("amqp:connection:forced", "go away", info)
    failure = failures.from_close(condition, PLAIN)
    assert (failure.kind, failure.condition, failure.retry_after) == (
        FailureReason.CLOSED,
        "amqp:connection:forced",
        None,
    )
    assert "go away" in failure.detail


@given(
    st.dictionaries(
        st.text(max_size=12), st.one_of(st.none(), st.integers(), st.text(), st.binary()), max_size=5
    )
)
def test_no_info_map_whatever_raises(info: dict[str, Any]) -> None:
    for name in ("network-host", "hostname", "scheme", "port", "retry-after"):
        for value in info.values():
            failures.from_close(proton.Condition(failures.REDIRECT, None, {**info, name: value}), PLAIN)
