"""``proton.reactor`` with failover: programs written for it change one import line.

    from haclient.reactor import Container

Handlers and options are proton's own; ``Container`` runs them on asyncio and on connections that survive
failovers.  docs/drop-in.md describes it, and the deliberate differences.

* ``container``, ``loop``   the object that applications start; events, timers, the end
* ``endpoints/``   the objects that handlers hold; ``binding`` moves them from one engine to the next
* ``proton_events``   events as handlers get them
* ``connectors``   dial once, or after every lost connection
* ``attempt_errors``   failed attempts that the handlers see
* ``addresses``, ``connect_options``, ``reconnecting``   the arguments of ``connect``
* ``listener``, ``selectables``, ``timers``   other sources of events; ``ssl_domain``, a listener's TLS
* ``kept``, ``ids``   objects that keep a container running; duplicate detection
* ``background_loop``   the event loop of ``haclient.utils``
"""

from __future__ import annotations

import haclient.engine  # noqa: F401 - names what a broken proton lacks

# isort: split
from proton import Handler
from proton.reactor import (
    ApplicationEvent,
    AtLeastOnce,
    AtMostOnce,
    Backoff,
    Copy,
    DurableSubscription,
    DynamicNodeProperties,
    Filter,
    LinkOption,
    Move,
    ReceiverOption,
    Selector,
    SenderOption,
)

from haclient.reactor.container import Container
from haclient.reactor.endpoints.transactions import Transaction, TransactionAborted
from haclient.reactor.selectables import EventInjector
from haclient.reactor.ssl_domain import SSLDomain

__all__ = [
    "ApplicationEvent",
    "AtLeastOnce",
    "AtMostOnce",
    "Backoff",
    "Container",
    "Copy",
    "DurableSubscription",
    "DynamicNodeProperties",
    "EventInjector",
    "Filter",
    "Handler",
    "LinkOption",
    "Move",
    "ReceiverOption",
    "SSLDomain",
    "Selector",
    "SenderOption",
    "Transaction",
    "TransactionAborted",
]
