"""The ``repr`` of the objects of both APIs: states, addresses and counts; no password and no body."""

from __future__ import annotations

import asyncio
import concurrent.futures

from haclient.core.connection import ConnectionCore
from haclient.core.delivery import DeliveryCore
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.error_catalog.base import quoted
from haclient.factory.factory_core import FactoryCore
from haclient.outcome import Outcome

AnyFuture = asyncio.Future[Outcome] | concurrent.futures.Future[Outcome]


def describe_factory(package: str, core: FactoryCore | None) -> str:
    """Describe a factory, with its URL but without passwords.

    :param core: ``None`` if the constructor raised; a debugger may still show the object.
    """
    if core is None:
        return f"<{package}.ConnectionFactory, not made>"
    state = "closed" if core.closed else "open"
    counts = f"connections={core.connections} unsettled={core.unsettled}"
    return f"<{package}.ConnectionFactory {core.client_id} of {core.url}: {state}, {counts}>"


def describe_connection(package: str, core: ConnectionCore) -> str:
    """Describe a connection, by its name in log lines."""
    where = "" if core.endpoint is None else f" to {core.endpoint}"
    generation = "" if core.generation is None else f" generation={core.generation}"
    links = core.links
    counts = f"senders={links.senders} receivers={links.receivers} unsettled={links.unsettled}"
    return f"<{package}.Connection {core.name}: {core.state.value}{where},{generation} {counts}>"


def describe_sender(package: str, core: SenderCore, unsettled: int) -> str:
    """Describe a sender."""
    state = _link_state(core, attached=core.connected)
    counts = f"unsettled={unsettled} window={core.ledger.window}"
    return f"<{package}.Sender to {quoted(core.address)}: {state}, {counts}>"


def describe_receiver(package: str, core: ReceiverCore) -> str:
    """Describe a receiver."""
    state = _link_state(core, attached=core.connected)
    return f"<{package}.Receiver from {quoted(core.address)}: {state}, prefetched={len(core.inbox)}>"


def describe_delivery(package: str, core: DeliveryCore) -> str:
    """Describe a delivery: the size of its message, but no content."""
    state = "settled" if core.settled else "stale" if core.stale else "unsettled"
    return f"<{package}.Delivery from {quoted(core.address)}: {state}, {len(core.data)} bytes>"


def describe_future(package: str, core: SenderCore, future: AnyFuture) -> str:
    """Describe a future of ``submit``; an error only by its type, since its text may quote the message."""
    if not future.done():
        state = "pending"
    elif future.cancelled():
        state = "cancelled"
    elif (error := future.exception()) is not None:
        state = type(error).__name__
    else:
        state = future.result().state.name.lower()
    return f"<{package} send to {quoted(core.address)}: {state}>"


def _link_state(core: SenderCore | ReceiverCore, *, attached: bool) -> str:
    if core.error is not None:
        return "closed"
    return "attached" if attached else "not attached"
