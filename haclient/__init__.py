"""A failover client for AMQP 1.0: finds the primary of a broker cluster, and the next one after a failure.

    with haclient.connect("amqp://broker-a,broker-b") as connection:
        connection.create_sender("orders").send(haclient.Message(body="one"))

``haclient.aio`` has the same names for asyncio.  ``haclient.errors`` has the exceptions, and
``haclient.events`` the events of a connection.

A name is imported on first use (PEP 562): the analysis runs on machines without proton.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module
if TYPE_CHECKING:
    from haclient import aio, errors, events
    from haclient.blocking import Connection, ConnectionFactory, Delivery, Receiver, Sender, connect
    from haclient.cluster_url.endpoint import Endpoint
    from haclient.cluster_url.seed import Credentials
    from haclient.cluster_url.url import ClusterURL
    from haclient.core.connection import State
    from haclient.core.message_encoder import Additions, OutgoingMessage
    from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
    from haclient.discovery.topology import Topology
    from haclient.engine.amqp_values.message import Body, Message, SendableBody, SequenceSections
    from haclient.engine.sasl.token import Token
    from haclient.outcome import Outcome, OutcomeState

    __version__: str

__all__ = [
    "Additions",
    "AttemptRecord",
    "Body",
    "ClusterURL",
    "Connection",
    "ConnectionFactory",
    "Credentials",
    "Delivery",
    "Endpoint",
    "Failure",
    "FailureReason",
    "Message",
    "Outcome",
    "OutcomeState",
    "OutgoingMessage",
    "Receiver",
    "SendableBody",
    "Sender",
    "SequenceSections",
    "State",
    "Token",
    "Topology",
    "aio",
    "connect",
    "errors",
    "events",
]

_MODULES = ("aio", "blocking", "errors", "events")
_HOMES = {
    "Additions": "haclient.core.message_encoder",
    "AttemptRecord": "haclient.discovery.evidence",
    "Body": "haclient.engine.amqp_values.message",
    "ClusterURL": "haclient.cluster_url.url",
    "Connection": "haclient.blocking",
    "ConnectionFactory": "haclient.blocking",
    "Credentials": "haclient.cluster_url.seed",
    "Delivery": "haclient.blocking",
    "Endpoint": "haclient.cluster_url.endpoint",
    "Failure": "haclient.discovery.evidence",
    "FailureReason": "haclient.discovery.evidence",
    "Message": "haclient.engine.amqp_values.message",
    "Outcome": "haclient.outcome",
    "OutcomeState": "haclient.outcome",
    "OutgoingMessage": "haclient.core.message_encoder",
    "Receiver": "haclient.blocking",
    "SendableBody": "haclient.engine.amqp_values.message",
    "SequenceSections": "haclient.engine.amqp_values.message",
    "Sender": "haclient.blocking",
    "State": "haclient.core.connection",
    "Token": "haclient.engine.sasl.token",
    "Topology": "haclient.discovery.topology",
    "connect": "haclient.blocking",
}

if not TYPE_CHECKING:  # type checkers would accept any name of the package

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return importlib.import_module(f"haclient.{name}")
        if name == "__version__":
            return importlib.import_module("haclient.version").package_version()
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
