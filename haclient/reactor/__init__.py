"""``proton.reactor`` with failover: programs written for it change one import line.

    from haclient.reactor import Container

Handlers and options are proton's own; ``Container`` runs them on asyncio and on
connections that outlive their brokers.  docs/drop-in.md says how, and what differs on purpose.

* ``container``, ``loop``   what applications start; events, timers, the end
* ``endpoints/``   what handlers hold, and ``binding``, which moves it from one engine to the next
* ``proton_events``   events as handlers get them
* ``connectors``   dial once, or over every failover
* ``attempt_errors``   which failed attempts the handlers see
* ``addresses``, ``connect_options``, ``reconnecting``   the arguments of ``connect``
* ``listener``, ``selectables``, ``timers``   what else a container watches; ``ssl_domain``, a listener's TLS
* ``kept``, ``ids``   what keeps a container alive; duplicate detection
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
