"""Endpoints as text, and as fields of an AMQP Close or Open.

Source: AMQP 1.0 part 2, section 2.8.16 (redirect); ``failover-server-list`` as Qpid JMS reads it.
"""

from __future__ import annotations

from typing import Any

from proton import symbol, ushort

from haclient.cluster_url.endpoint import Endpoint

_MAX_PORT = 65535


def parse_endpoint(text: str) -> Endpoint:
    """Parse ``[amqp://|amqps://]host:port``; an IPv6 literal has brackets.

    Unlike in a cluster URL, the port may be 0: a listening member then takes a free one.

    :raises ValueError: if the text has another form.
    """
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme not in ("amqp", "amqps"):
        raise ValueError(f"{text!r}: the scheme must be amqp or amqps")
    host, separator, port = rest.rstrip("/").rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"{text!r} is not host:port")
    if host.startswith("["):
        host = host.removeprefix("[").removesuffix("]")
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address goes in brackets")
    return Endpoint(host, int(port), tls=scheme == "amqps")


def endpoint_fields(endpoint: Endpoint) -> dict[str, Any]:
    """Return the map of an endpoint for a redirect's ``info`` or ``failover-server-list``."""
    return {
        symbol("network-host"): endpoint.host,
        symbol("port"): ushort(endpoint.port),
        symbol("hostname"): endpoint.host,
        symbol("scheme"): "amqps" if endpoint.tls else "amqp",
    }
