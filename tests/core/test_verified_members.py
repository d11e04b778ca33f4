"""Members that have proved their identity by certificate, and clients that show a certificate."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Any

import pytest

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.options import Options
from haclient.cluster_url.url import ClusterURL
from haclient.discovery.topology import Topology
from haclient.factory.connect_params import CredentialsSource, EndpointParams
from haclient.telemetry.redact import Redactor
from tests.certificates import Authority

TLS, PLAIN = Endpoint("127.0.0.1", 5671, tls=True), Endpoint("127.0.0.1", 5672)
SEEDS = (TLS, Endpoint("broker.example.com", 5671, tls=True))
STRANGER = Endpoint("stranger.test", 5671, tls=True)


def without_names() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    return context


@pytest.mark.parametrize(
    ("endpoint", "options", "context", "verified"),
    [
        (TLS, {}, None, True),
        (TLS, {"tls_verify": False}, None, False),
        (PLAIN, {}, None, False),
        (TLS, {}, ssl.create_default_context(), True),
        (TLS, {}, without_names(), False),
        (TLS, {}, ssl._create_unverified_context(), False),  # noqa: S323 - one that verifies nothing
        (PLAIN, {}, ssl.create_default_context(), False),
        (TLS, {"sasl_mechanisms": ("EXTERNAL",)}, None, True),
        (TLS, {"sasl_mechanisms": ("EXTERNAL",), "tls_verify": False}, None, False),
        (PLAIN, {"sasl_mechanisms": ("EXTERNAL",)}, None, False),
        (replace(TLS, server_name="broker.example.com"), {}, None, True),
        (Endpoint("other.example.com", 5671, tls=True), {}, None, True),
        (Endpoint("stranger.test", 5671, tls=True), {}, None, False),
        (Endpoint("stranger.test", 5671, tls=True), {"tls_server_name": "broker.example.com"}, None, True),
        (replace(TLS, server_name="stranger.test"), {}, None, False),
        (Endpoint("stranger.test", 5671, tls=True), {"sasl_mechanisms": ("EXTERNAL",)}, None, False),
    ],
)
async def test_only_a_certificate_with_the_name_of_a_member_is_proof(
    authority: Authority,
    endpoint: Endpoint,
    options: dict[str, Any],
    context: ssl.SSLContext | None,
    *,
    verified: bool,
) -> None:
    if "sasl_mechanisms" in options:
        options = {**options, **certificate_of(authority)}
    params = params_of(options, context)
    assert (await params.params_for(endpoint)).verified is verified


def certificate_of(authority: Authority) -> dict[str, Any]:
    certificate = authority.issue("client")
    return {"tls_cert": str(certificate.chain), "tls_key": str(certificate.key)}


def params_of(options: dict[str, Any], context: ssl.SSLContext | None = None) -> EndpointParams:
    topology = Topology(seeds=SEEDS)
    source = CredentialsSource(ClusterURL.parse("amqp://127.0.0.1"), None, lambda: topology)
    return EndpointParams(
        Options(**options),
        client_id=lambda: "client",
        desired_capabilities=(),
        source=source,
        context=context,
        redactor=Redactor(),
    )


def test_a_client_that_has_a_certificate_or_may_have_one_shows_it(authority: Authority) -> None:
    """An ``SSLContext`` does not say whether it has a certificate."""
    certificate = certificate_of(authority)
    external = {**certificate, "sasl_mechanisms": ("EXTERNAL",)}
    shown = [params_of(options).shows_certificate for options in (certificate, external, {})]
    assert shown == [True, True, False]
    assert params_of({}, ssl.create_default_context()).shows_certificate
    assert not params_of({"tls_ca": str(authority.file)}).shows_certificate
