"""An endpoint as text, with port 0 if the system chooses the port."""

from __future__ import annotations

import pytest

from broker_stub.amqp.endpoints import parse_endpoint
from haclient.cluster_url.endpoint import Endpoint


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:5672", Endpoint("a", 5672)),
        ("amqps://a:5671", Endpoint("a", 5671, tls=True)),
        ("[::1]:5672", Endpoint("::1", 5672)),
        ("amqp://127.0.0.1:1/", Endpoint("127.0.0.1", 1)),
    ],
)
def test_an_address_is_read_as_it_is_written(text: str, address: Endpoint) -> None:
    assert parse_endpoint(text) == address
    assert parse_endpoint(str(address)) == address


@pytest.mark.parametrize("text", ["", "a", "a:", "a:x", "a:70000", "::1:5672", "http://a:1", ":5672"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|brackets|scheme"):
        parse_endpoint(text)
