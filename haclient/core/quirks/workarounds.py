"""What the client does about some quirks of its peer."""

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
"""What an application may have overlooked; at INFO, for the client cannot know it."""
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
    """Return whether a receiver of this peer may have a place in a stream, asked for or not."""
    return Quirk.STREAM_OFFSETS in quirks_of(engine.peer_properties)


def refuses_by_end(engine: Engine) -> bool:
    """Return whether this peer refuses a link by the End of its session."""
    return Quirk.REFUSES_BY_END in quirks_of(engine.peer_properties)


def ids_live_with_messages(peer_properties: Mapping[str, Any]) -> bool:
    """Return whether a peer forgets the duplicate-detection id of each message that it loses."""
    return peer_properties.get(IDS_LIVE_WITH_MESSAGES) is True


def advise_sender(engine: Engine, name: str, address: str, target: proton.Terminus) -> None:
    """Say what the application may have overlooked of a sender that is attached.

    :param address: that of the application; ``target``: what was asked of this peer.
    """
    advise_address(engine.peer_properties, name, target.address or address, receives=False)
    if not peer_fields.capabilities(target):
        advise_capability(engine, name, address)


def advise_capability(engine: Engine, name: str, address: str) -> None:
    """Say that this sender asks for no kind of node, where the peer then makes a topic.

    Whether the address was a queue before is unknown: the answer to the Attach is the same (Artemis 2.56).
    """
    properties = engine.peer_properties
    if Quirk.TOPIC_BY_DEFAULT in quirks_of(properties):
        advice.info(_TOPIC_ADVICE, name, properties["product"], address)


def advise_address(peer_properties: Mapping[str, Any], name: str, address: str, *, receives: bool) -> None:
    """Warn of an address of which this peer makes a queue that does not outlive a node.

    Whether the queue was there before is unknown: the answer to the Attach is the same (RabbitMQ 4.0.5).
    """
    if Quirk.OLD_ADDRESSES not in quirks_of(peer_properties):
        return
    if (queue := _queue_made(address, receives=receives)) is not None:
        better = f"/queues/{quote(queue, safe='')}"
        advice.warning(_ADDRESS_ADVICE, name, peer_properties["product"], address, better)


def _queue_made(address: str, *, receives: bool) -> str | None:
    """Return the name of the queue that RabbitMQ 4 makes of an address, if it is not there.

    A receiver of an exchange gets one with a name that RabbitMQ makes up: ``NAME`` stands for it.
    """
    if address.startswith(("/exchange/", "/topic/")):
        return "NAME" if receives else None
    name = address.removeprefix("/queue/")
    return None if "/" in name else name.replace("%2F", "/")  # it decodes nothing else


def apply(engine: Engine, loop: asyncio.AbstractEventLoop, vhost: str | None) -> None:
    """Work around the quirks of this connection's peer, until the connection ends.

    :param vhost: the one that the application asks for.
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
