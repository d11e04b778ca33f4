"""A failover client for AMQP 1.0: finds the primary of a broker cluster and survives its death.

    with haclient.connect("amqp://broker-a,broker-b") as connection:
        connection.create_sender("orders").send(haclient.Message(body="one"))

``haclient.aio`` has the same names for asyncio.  See ``haclient.errors`` for what can go wrong
and ``haclient.events`` for what can be watched.
"""

from __future__ import annotations

from proton import Message

from haclient import aio, errors, events
from haclient.blocking import Connection, ConnectionFactory, Delivery, Receiver, Sender, connect
from haclient.discovery.cluster_url import ClusterURL
from haclient.discovery.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Miss, MissKind
from haclient.discovery.topology import Topology
from haclient.factory import Credentials
from haclient.links.connection import State
from haclient.outcome import Outcome, OutcomeState

__all__ = [
    "AttemptRecord",
    "ClusterURL",
    "Connection",
    "ConnectionFactory",
    "Credentials",
    "Delivery",
    "Endpoint",
    "Message",
    "Miss",
    "MissKind",
    "Outcome",
    "OutcomeState",
    "Receiver",
    "Sender",
    "State",
    "Topology",
    "aio",
    "connect",
    "errors",
    "events",
]
