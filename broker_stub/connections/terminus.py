"""Reads the terminus of a peer's Attach, and answers with the properties that apply here.

Source: AMQP 1.0 part 2, section 2.7.3 (attach); part 3, sections 3.5.3 and 3.5.4 (source and target).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

import proton

from broker_stub.amqp.conditions import INVALID_FIELD, NOT_IMPLEMENTED
from broker_stub.queueing.exchanges import Route
from broker_stub.queueing.node_lifetime import LifetimePolicy
from broker_stub.queueing.nodes import REPLICATE_PROPERTY, AddressRefusedError
from broker_stub.queueing.options import NO_OPTIONS, OPTION_NAMES, QueueOptionError, QueueOptions
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import SITE_PROPERTY
from haclient.engine import peer_fields
from haclient.engine.links import ReceiverLink, SenderLink

LIFETIME_PROPERTY = "lifetime-policy"
_OUTCOMES: Final = frozenset(f"amqp:{each}:list" for each in ("accepted", "rejected", "released", "modified"))
# By descriptor: the number or the symbol.
_POLICIES: Final[dict[int | str, LifetimePolicy]] = {int(each): each for each in LifetimePolicy} | {
    f"amqp:{each.name.lower().replace('_', '-')}:list": each for each in LifetimePolicy
}


def mirror(link: SenderLink | ReceiverLink) -> None:
    """Answer a link between members with the requested terminus."""
    endpoint = link.endpoint
    endpoint.source.copy(endpoint.remote_source)
    endpoint.target.copy(endpoint.remote_target)
    _answer_settle_modes(link)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The capabilities and properties of a node, for the answer to an Attach.

    :param capabilities: its capabilities.
    :param properties: its node properties, by name.
    """

    capabilities: frozenset[str] = frozenset()
    properties: Mapping[str, Any] = field(default_factory=dict)


def node_facts(node: Queue | Route, policy: LifetimePolicy | None = None) -> NodeFacts:
    """Return the facts of a queue or an exchange.

    :param policy: the lifetime policy of a dynamic node.
    """
    if isinstance(node, Route):
        exchange = node.exchange
        return NodeFacts(frozenset(("topic",)), {REPLICATE_PROPERTY: str(exchange.replicate)})
    properties: dict[str, Any] = {REPLICATE_PROPERTY: str(node.replicate), SITE_PROPERTY: str(node.site)}
    properties |= node.options.plain()
    if policy is not None:
        properties[LIFETIME_PROPERTY] = proton.Described(proton.ulong(policy), [])
    kinds = ("queue", "temporary-queue") if node.temporary else ("queue",)
    return NodeFacts(frozenset(kinds), properties)


def lifetime_policy(terminus: proton.Terminus) -> LifetimePolicy:
    """Return the requested lifetime policy of a dynamic node.

    :raises AddressRefusedError: if the policy is unknown.
    """
    asked = peer_fields.node_properties(terminus).get(LIFETIME_PROPERTY)
    if asked is None:
        return LifetimePolicy.DELETE_ON_CLOSE
    descriptor = asked.descriptor if isinstance(asked, proton.Described) else None
    policy = _POLICIES.get(descriptor) if isinstance(descriptor, int | str) else None
    if policy is None:
        raise AddressRefusedError(NOT_IMPLEMENTED, f"there is no lifetime policy {asked!r:.100}")
    return policy


def answer_target(link: ReceiverLink, address: str | None, node: NodeFacts) -> None:
    """Answer with the actual target: unsupported parts are left out."""
    asked, own = link.endpoint.remote_target, link.endpoint.target
    own.type = asked.type
    if address is not None:
        own.address = address
    own.dynamic = asked.dynamic
    _answer_node(asked, own, node)
    source = link.endpoint.source
    source.copy(link.endpoint.remote_source)  # the sender's terminus, which this member does not change
    _answer_settle_modes(link)


def answer_source(
    link: SenderLink,
    address: str | None,
    node: NodeFacts,
    *,
    browsing: bool,
    filters: Mapping[str, proton.Described] | None = None,
    durable: bool = False,
) -> None:
    """Answer with the actual source: unsupported parts are left out.

    :param filters: the filters that apply, by the peer's keys.
    :param durable: true if the source outlives the link.
    """
    asked, own = link.endpoint.remote_source, link.endpoint.source
    own.type = proton.Terminus.SOURCE
    if address is not None:
        own.address = address
    own.dynamic = asked.dynamic
    own.distribution_mode = proton.Terminus.DIST_MODE_COPY if browsing else proton.Terminus.DIST_MODE_MOVE
    if durable:
        own.durability = proton.Terminus.DELIVERIES
        own.expiry_policy = proton.Terminus.EXPIRE_NEVER
    else:
        own.expiry_policy = proton.Terminus.EXPIRE_WITH_LINK
    if filters:
        own.filter.put_object({proton.symbol(name): each for name, each in filters.items()})
    outcomes = peer_fields.outcomes(asked) & _OUTCOMES
    if outcomes:
        own.outcomes.put_object(_symbols(sorted(outcomes)))
    _answer_node(asked, own, node)
    target = link.endpoint.target
    target.copy(link.endpoint.remote_target)  # the receiver's terminus, which this member does not change
    _answer_settle_modes(link)


def _answer_settle_modes(link: SenderLink | ReceiverLink) -> None:
    endpoint = link.endpoint
    endpoint.snd_settle_mode = endpoint.remote_snd_settle_mode
    # A sender that confirms outcomes sets its own mode. A receiver settles at once in either mode: an
    # accepted message is safe then. Senders that request *second*, and wait to be settled, would wait
    # forever.
    is_receiver = isinstance(link, ReceiverLink)
    endpoint.rcv_settle_mode = endpoint.remote_rcv_settle_mode if is_receiver else proton.Link.RCV_FIRST


def _answer_node(asked: proton.Terminus, own: proton.Terminus, node: NodeFacts) -> None:
    """Answer with the requested capabilities and properties that apply."""
    names = peer_fields.capabilities(asked) & node.capabilities
    if names:
        own.capabilities.put_object(_symbols(sorted(names)))
    given = peer_fields.node_properties(asked)
    held = {proton.symbol(name): value for name, value in node.properties.items() if name in given}
    if held:
        own.properties.put_object(held)


def _symbols(names: Iterable[str]) -> proton.Array:
    undescribed: Any = proton.UNDESCRIBED  # proton's annotation of this argument omits its own constant
    return proton.Array(undescribed, proton.Data.SYMBOL, *map(proton.symbol, names))


def properties(link: SenderLink) -> dict[str, Any]:
    """Return the properties of the peer's Attach, by plain string."""
    return peer_fields.properties(link.endpoint)


class NodeProperties(TypedDict):
    """The node properties of a queue that the Attach creates."""

    replicate: str | None
    site: str | None
    options: QueueOptions


NO_NODE_PROPERTIES = NodeProperties(replicate=None, site=None, options=NO_OPTIONS)


def node_properties(terminus: proton.Terminus) -> NodeProperties:
    """Return ``x-qpid-replicate``, ``x-qpid-site-replicate`` and the options of the node properties.

    :raises AddressRefusedError: if a property that begins with ``x-`` is unknown, or an option has an invalid
        value.
    """
    given = peer_fields.node_properties(terminus)
    if not given:
        return NO_NODE_PROPERTIES
    texts = {key: str(item) for key, item in given.items() if item is not None}
    known = (REPLICATE_PROPERTY, SITE_PROPERTY, *OPTION_NAMES)
    unknown = sorted(key for key in texts if key.startswith("x-") and key not in known)
    if unknown:
        raise AddressRefusedError(
            INVALID_FIELD, f"there is no node property {', '.join(unknown)}: {', '.join(known)}"
        )
    try:
        options = QueueOptions.of(given)
    except QueueOptionError as error:
        raise AddressRefusedError(INVALID_FIELD, str(error)) from None
    return NodeProperties(
        replicate=texts.get(REPLICATE_PROPERTY), site=texts.get(SITE_PROPERTY), options=options
    )


def check_is_topic(source: proton.Terminus, *, is_exchange: bool) -> None:
    """Refuse a subscription to a queue, since other receivers would take some of its messages.

    :raises AddressRefusedError: if the topic is not an exchange.
    """
    if "topic" in peer_fields.capabilities(source) and not is_exchange:
        raise AddressRefusedError(
            NOT_IMPLEMENTED, f"{source.address!r} is no exchange, and a queue has no subscriptions"
        )
