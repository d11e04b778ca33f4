"""What the client does about some quirks of its peer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from haclient.core.quirks.products import Quirk, quirks_of
from haclient.engine.link_table import repeat_credit
from haclient.printable.log import get_logger

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

advice = get_logger("haclient.advice")
"""What an application may have overlooked; at INFO, for the client cannot know it."""
_INTERVAL = 5.0
IDS_LIVE_WITH_MESSAGES = "haclient:ids-live-with-messages"
"""A property of the Open, true or absent."""

_TOPIC_ADVICE = (
    "%s: %s makes a topic of an address that it does not know, and accepts messages that no receiver gets: "
    "if %r is a queue, ask for the capability 'queue'"
)


def takes_early_credit(engine: Engine) -> bool:
    """Return whether a receiver may grant this peer credit before its Attach."""
    return Quirk.COUNTS_FROM_ZERO in quirks_of(engine.peer_properties)


def refuses_by_end(engine: Engine) -> bool:
    """Return whether this peer refuses a link by the End of its session."""
    return Quirk.REFUSES_BY_END in quirks_of(engine.peer_properties)


def ids_live_with_messages(peer_properties: Mapping[str, Any]) -> bool:
    """Whether a peer forgets the duplicate-detection id of a message that it loses, whatever it loses."""
    return peer_properties.get(IDS_LIVE_WITH_MESSAGES) is True


def advise_capability(engine: Engine, name: str, address: str) -> None:
    """Say that this sender asks for no kind of node, where the peer then makes a topic.

    Whether the address was a queue before is unknown: the answer to the Attach is the same (Artemis 2.56).
    """
    properties = engine.peer_properties
    if Quirk.TOPIC_BY_DEFAULT in quirks_of(properties):
        advice.info(_TOPIC_ADVICE, name, properties["product"], address)


def apply(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """Work around the quirks of this connection's peer, until the connection ends."""
    if Quirk.FORGETS_CREDIT in quirks_of(engine.peer_properties):
        loop.call_later(_INTERVAL, _remind, engine, loop)


def _remind(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    if engine.close_reason is None:
        repeat_credit(engine)
        loop.call_later(_INTERVAL, _remind, engine, loop)
