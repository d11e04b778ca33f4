"""Reads the terminus of a peer's Attach, and mirrors it in the answer.

Source: AMQP 1.0 part 2, section 2.7.3 (attach); part 3, sections 3.5.3 and 3.5.4 (source and target).
"""

from __future__ import annotations

from typing import Any, TypedDict

import proton

from broker_stub.amqp.conditions import NOT_IMPLEMENTED
from broker_stub.queueing.nodes import REPLICATE_PROPERTY, AddressRefusedError
from broker_stub.queueing.site_state import SITE_PROPERTY
from haclient.engine import peer_fields
from haclient.engine.links import ReceiverLink, SenderLink


def mirror(link: SenderLink | ReceiverLink) -> None:
    """Answer with the terminus that the peer requested, where it holds here."""
    endpoint = link.endpoint
    address = endpoint.target.address
    endpoint.source.copy(endpoint.remote_source)
    endpoint.target.copy(endpoint.remote_target)
    if address is not None:
        endpoint.target.address = address
    endpoint.snd_settle_mode = endpoint.remote_snd_settle_mode
    endpoint.rcv_settle_mode = proton.Link.RCV_FIRST


def properties(link: SenderLink) -> dict[str, Any]:
    """The properties of the peer's Attach, by plain string."""
    return peer_fields.properties(link.endpoint)


class NodeProperties(TypedDict):
    """The node properties of a queue that the attach creates."""

    replicate: str | None
    site: str | None


NO_NODE_PROPERTIES = NodeProperties(replicate=None, site=None)


def node_properties(terminus: proton.Terminus) -> NodeProperties:
    """``x-qpid-replicate`` and ``x-qpid-site-replicate`` of the node properties."""
    given = peer_fields.node_properties(terminus)
    texts = {key: str(item) for key, item in given.items() if item is not None}
    return NodeProperties(replicate=texts.get(REPLICATE_PROPERTY), site=texts.get(SITE_PROPERTY))


def refuse_subscriptions(source: proton.Terminus, *, is_exchange: bool) -> None:
    """Refuse a source that is a subscription: a client that asks for all messages must not share a queue's.

    An exchange has subscriptions that end with their link; there are no others.

    :raises AddressRefusedError: when it is durable or shared, or its topic is no exchange.
    """
    if source.type == proton.Terminus.UNSPECIFIED and not source.dynamic and source.address is None:
        raise AddressRefusedError(NOT_IMPLEMENTED, "durable subscriptions are not supported")
    asked = peer_fields.capabilities(source)
    if source.durability and source.expiry_policy == proton.Terminus.EXPIRE_NEVER:
        raise AddressRefusedError(NOT_IMPLEMENTED, "durable subscriptions are not supported")
    if "shared" in asked:
        raise AddressRefusedError(NOT_IMPLEMENTED, "shared subscriptions are not supported")
    if "topic" in asked and not is_exchange:
        raise AddressRefusedError(
            NOT_IMPLEMENTED, f"{source.address!r} is no exchange, and a queue has no subscriptions"
        )


def refuse_filters(source: proton.Terminus) -> None:
    """Refuse a source with filters: a client that asks for some messages must not get all.

    :raises AddressRefusedError: when there is a filter.
    """
    if peer_fields.has_filter(source):
        names = ", ".join(peer_fields.filters(source))
        raise AddressRefusedError(NOT_IMPLEMENTED, f"filters are not supported: {names}")
