"""The client's workarounds for some quirks of its peer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import proton

from haclient.core.quirks.products import Quirk, quirks_of
from haclient.engine import peer_fields
from haclient.engine.link_table import repeat_credit
from haclient.printable.log import get_logger

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

advice = get_logger("haclient.advice")
"""Advice on possible mistakes of the application; at INFO, since the client cannot be sure."""
_INTERVAL = 5.0
IDS_LIVE_WITH_MESSAGES = "haclient:ids-live-with-messages"
"""A property of the Open, true or absent."""

TOPIC_ADVICE_END = "ask for the capability 'queue'"
_TOPIC_ADVICE = (
    "%s: %s makes a topic of an address that it does not know, and accepts messages that no receiver gets: "
    f"if %r is a queue, {TOPIC_ADVICE_END}"
)
_ADDRESS_ADVICE = (
    "%s: %s makes a queue of %r, if there is none, on one node and by default not durable: its messages are "
    "lost with that node, although they were accepted; declare a quorum queue, and write %s"
)
_VHOST = "vhost:"
_VHOST_ADVICE = "%s ignores the virtual host %r, and this connection is to its default one: write vhost=%s%s"


def takes_early_credit(engine: Engine) -> bool:
    """Return whether a receiver may grant this peer credit before its Attach."""
    return Quirk.COUNTS_FROM_ZERO in quirks_of(engine.peer_properties)


def has_streams(engine: Engine) -> bool:
    """Return whether this peer may deliver from a stream even if a receiver did not ask for a position."""
    return Quirk.STREAM_OFFSETS in quirks_of(engine.peer_properties)


def refuses_by_end(engine: Engine) -> bool:
    """Return whether this peer refuses a link by the End of its session."""
    return Quirk.REFUSES_BY_END in quirks_of(engine.peer_properties)


def ids_live_with_messages(peer_properties: Mapping[str, Any]) -> bool:
    """Return whether the peer also forgets the duplicate-detection id of each message that it loses."""
    return peer_properties.get(IDS_LIVE_WITH_MESSAGES) is True


def advise_sender(engine: Engine, name: str, address: str, target: proton.Terminus) -> None:
    """Log advice for an attached sender.

    :param address: the application's address; ``target``: the target requested from this peer.
    """
    advise_address(engine.peer_properties, name, target.address or address, receives=False)
    if not peer_fields.capabilities(target):
        advise_capability(engine, name, address)


def advise_capability(engine: Engine, name: str, address: str) -> None:
    """Log advice if a sender asks for no kind of node, and the peer then makes a topic.

    Whether the address was a queue before is unknown: the answer to the Attach is the same (Artemis 2.56).
    """
    properties = engine.peer_properties
    if Quirk.TOPIC_BY_DEFAULT in quirks_of(properties):
        advice.info(_TOPIC_ADVICE, name, properties["product"], address)


def advise_address(peer_properties: Mapping[str, Any], name: str, address: str, *, receives: bool) -> None:
    """Warn if the peer makes a queue of this address that is lost with one node.

    Whether the queue existed before is unknown: the answer to the Attach is the same (RabbitMQ 4.0.5).
    """
    if Quirk.OLD_ADDRESSES not in quirks_of(peer_properties):
        return
    if (queue := _queue_made(address, receives=receives)) is not None:
        better = f"/queues/{quote(queue, safe='')}"
        advice.warning(_ADDRESS_ADVICE, name, peer_properties["product"], address, better)


def _queue_made(address: str, *, receives: bool) -> str | None:
    """Return the name of the queue that RabbitMQ 4 makes of an address, if there is none.

    For a receiver of an exchange RabbitMQ generates a name; ``NAME`` stands for it.
    """
    if address.startswith(("/exchange/", "/topic/")):
        return "NAME" if receives else None
    name = address.removeprefix("/queue/")
    return None if "/" in name else name.replace("%2F", "/")  # RabbitMQ decodes no other escape


def apply(engine: Engine, loop: asyncio.AbstractEventLoop, vhost: str | None) -> None:
    """Work around the quirks of this connection's peer, until the connection ends.

    :param vhost: the virtual host that the application asks for.
    """
    quirks = quirks_of(engine.peer_properties)
    if Quirk.FORGETS_CREDIT in quirks:
        loop.call_later(_INTERVAL, _remind, engine, loop)
    if vhost is not None and Quirk.BARE_VHOST in quirks and not vhost.startswith(_VHOST):
        advice.warning(_VHOST_ADVICE, engine.peer_properties["product"], vhost, _VHOST, vhost)


def _remind(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    if engine.close_reason is None:
        repeat_credit(engine)
        loop.call_later(_INTERVAL, _remind, engine, loop)
