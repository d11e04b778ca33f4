"""Translation of the connection options of Qpid's C++ client.

There they are a map beside the URL; here they are in its query: ``amqp:tcp:a:5672?reconnect=true``.  Words
are separated by ``_`` or ``-``, as there.

Source: ``qpid::messaging::ConnectionOptions``; "Programming in Apache Qpid", section "Connection options".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from haclient.cluster_url.foreign_options import (
    Counterpart,
    Written,
    equal,
    only,
    passes,
    refused,
    seconds,
    switch,
    translate,
)
from haclient.cluster_url.options import OPTION_NAMES, Options, refuse_unknown

RECONNECT_URLS = "reconnect_urls"

_Pairs = tuple[tuple[str, str], ...]
_URL = "write it before the hosts, as in amqp:user/password@tcp:host:port"
_STRENGTH = "encryption is a matter of TLS: write ssl: before the host"
_MESSAGES = "messages are as the application makes them"

QPID_CPP: Mapping[str, Counterpart] = MappingProxyType(
    {
        "reconnect": switch("false", off="this client always reconnects"),
        "reconnect_timeout": seconds(
            "deadline", "startup_deadline", default="", remark="there too it limits the first connect"
        ),
        "reconnect_limit": passes("-1"),
        "reconnect_interval_min": seconds("backoff_base", default="0.001"),
        "reconnect_interval_max": seconds("backoff_max", default="2"),
        "reconnect_interval": seconds(
            "backoff_base", "backoff_max", default="", remark="the delay is random, up to this value"
        ),
        RECONNECT_URLS: replace(
            refused("it stands in a URL of the form amqp:tcp:host:port"),
            remark="more members, separated by commas, with the credentials of the URL",
        ),
        "reconnect_urls_replace": switch("false", on="the members in the URL are always tried"),
        "username": refused(_URL),
        "password": refused(_URL),
        "sasl_mechanism": equal("sasl_mechanisms", ""),
        "sasl_mechanisms": equal("sasl_mechanisms", ""),
        "sasl_service": only("amqp", "amqp", "it is the name of the protocol"),
        "sasl_min_ssf": refused(_STRENGTH),
        "sasl_max_ssf": refused(_STRENGTH),
        "heartbeat": equal(
            "heartbeat",
            "0",
            "a peer is lost there after two silent intervals, here after one: double the value",
        ),
        "tcp_nodelay": switch("false", off="small frames are never held back"),
        "max_frame_size": equal("max_frame_size", "65535"),
        "container_id": equal("client_id", ""),
        "protocol": only("amqp1.0", "amqp0-10", "the client speaks AMQP 1.0 only"),
        "transport": refused("write tcp: or ssl: before the host", "tcp"),
        "ssl_cert_name": refused("the certificate of this client is a PEM file: use tls_cert"),
        "ssl_ignore_hostname_verification_failure": switch(
            "false", on="the name is checked with the certificate; tls_verify=false checks neither"
        ),
        "x_reconnect_on_limit_exceeded": switch("true", off="the client dials a full member again"),
        "locale": refused("the peer chooses the language of its error texts"),
        "max_channels": refused("the client begins sessions as it needs them"),
        "bounds": refused("the option window limits unsettled messages"),
        "nest_annotations": refused(_MESSAGES),
        "set_to_on_send": refused(_MESSAGES),
        "address_passthrough": refused("addresses are always passed as they are"),
        "properties": refused("the properties of Open are the client's own"),
        "client_properties": refused("the properties of Open are the client's own"),
        "max_delivery_attempts": refused("the application decides whether to send again"),
        "raise_rejected": switch("true", off="send() raises for every outcome but accepted"),
        "redelivery_timeout": refused("the application decides whether to send again"),
    }
)


def divide_urls(pairs: _Pairs) -> tuple[tuple[str, ...], _Pairs]:
    """Split off the addresses of ``reconnect_urls``, which are more members, from the other options."""
    urls = [text for name, text in pairs if _normal(name) == RECONNECT_URLS]
    addresses = tuple(each.removeprefix("amqp:") for text in urls for each in text.split(","))
    return addresses, tuple(pair for pair in pairs if _normal(pair[0]) != RECONNECT_URLS)


def parse_qpid_options(pairs: Iterable[tuple[str, str]], members: int = 1) -> tuple[Options, Written]:
    """Return the options for the names and decoded texts of a URL in Qpid's form.

    :param members: number of members in the list.
    :raises ClusterURLError: names the option at fault as it was written.
    """
    return translate(pairs, _counterpart, members)


def _counterpart(spelt: str) -> Counterpart | str:
    name = _normal(spelt)
    if name in OPTION_NAMES:
        return name
    if name not in QPID_CPP:
        raise refuse_unknown(name, spelt)
    return QPID_CPP[name]


def _normal(name: str) -> str:
    return name.replace("-", "_")
