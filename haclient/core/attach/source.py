"""The source that a receiver asks for, and the check of the peer's Attach against it.

Rules
-----
* A peer that does not know a filter omits it in its answer, and sends every message.  So a missing or changed
  filter in the answer is an error, unless the caller wants to continue.
* The descriptor of a filter may be its name or its number: both mean the same, and a peer may answer with
  either.
* A subscription is shared only if the peer's Open offers that.  The capability in the answer proves nothing:
  ActiveMQ Classic repeats capabilities that it does not know.  So the client decides before the Attach, which
  could leave a subscription behind that cannot be found again.

Sources: AMQP 1.0 part 3, sections 3.5.3 (source), 3.5.6 (expiry) and 3.5.8 (filters); the registry of filters
(``apache.org:selector-filter:string``); the JMS mapping of Apache Qpid (capabilities ``topic``, ``shared``,
``global``; ``SHARED-SUBS``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import proton

from haclient.core.attach.streams import OFFSET, check_offset
from haclient.core.attach.target import target_capabilities
from haclient.engine import peer_fields
from haclient.error_catalog.arguments import check_flag, check_text, check_type
from haclient.error_catalog.base import quoted
from haclient.errors import FilterNotSupported, HaclientError, LinkRefused

SELECTOR = "apache.org:selector-filter:string"
TOPIC, SHARED, GLOBAL = "topic", "shared", "global"
_SHARES = "SHARED-SUBS"


@dataclass(frozen=True, slots=True)
class SourceParams:
    """The properties of the source that a receiver asks for.

    :param filters: by name, in the form that proton reads back.
    :param durable: the source outlives the link, with the state of its deliveries.
    :param strict: whether a filter or a shared subscription that the peer does not grant is an error; a
        durable shared one always needs a peer that supports sharing.
    :param is_lookup: the source is null, and the peer finds it by the name of the link.
    """

    filters: Mapping[str, proton.Described]
    capabilities: tuple[str, ...] = ()
    durable: bool = False
    strict: bool = True
    is_lookup: bool = False

    @property
    def must_apply(self) -> Collection[str]:
        """Names of the filters that the peer must apply before any message may arrive."""
        return self.filters if self.strict else ()

    @property
    def must_check(self) -> bool:
        """Return whether messages may arrive only after the peer's answer was checked."""
        return self.strict and bool(self.filters)

    @property
    def is_shared(self) -> bool:
        """Return whether receivers, of this client or of all, share its messages."""
        return SHARED in self.capabilities or GLOBAL in self.capabilities

    def refusal_ahead(self, peer: proton.Connection, address: str | None) -> HaclientError | None:
        """Return an error if the peer's Open shows that it cannot provide this source."""
        if not self.is_shared or _SHARES in peer_fields.offered_capabilities(peer):
            return None
        if self.durable and GLOBAL in self.capabilities:
            message = (
                f"the primary does not share subscriptions, so a durable one to {quoted(address)} "
                "belongs to a client_id: give one in the URL (client_id=NAME)"
            )
        elif self.durable:
            message = (
                f"the primary does not share subscriptions: a second receiver of {quoted(address)} would "
                "leave a durable subscription of its own behind; subscribe without shared=True"
            )
        elif self.strict:
            message = (
                f"the primary does not share subscriptions: each receiver of {quoted(address)} would get "
                "all; strict=False goes on"
            )
        else:
            return None
        return LinkRefused(message, "amqp:not-implemented")

    def apply(self, source: proton.Terminus) -> None:
        """Write these properties into the source of an Attach."""
        if self.is_lookup:
            source.type = proton.Terminus.UNSPECIFIED
        if self.filters:
            source.filter.put_object({proton.symbol(name): each for name, each in self.filters.items()})
        if self.capabilities:
            undescribed: Any = proton.UNDESCRIBED
            symbols = map(proton.symbol, self.capabilities)
            source.capabilities.put_object(proton.Array(undescribed, proton.Data.SYMBOL, *symbols))
        if self.durable:
            source.durability = proton.Terminus.DELIVERIES
            source.expiry_policy = proton.Terminus.EXPIRE_NEVER

    def refusal(self, endpoint: proton.Receiver, address: str | None) -> HaclientError | None:
        """Return an error if the peer's Attach does not grant the requested filters."""
        if not self.must_check:
            return None
        granted = peer_fields.filters(endpoint.remote_source)
        missing = tuple(name for name in self.filters if name not in granted)
        asked = {**self.filters, **peer_fields.filters(endpoint.source)}  # as sent over this connection
        other = [name for name in self.filters if name in granted and not _same(asked[name], granted[name])]
        if missing or other:
            return _not_supported(address, missing, {name: granted[name] for name in other})
        return None


PLAIN = SourceParams({})


def source_params(
    selector: str | None, filters: Mapping[str, Any] | None, capabilities: Sequence[str], *, strict: bool
) -> SourceParams:
    """Check the application's arguments for a source.

    :raises ValueError: for an empty selector, and for a selector that is among the filters, too.
    :raises TypeError: for a value that AMQP cannot carry.
    """
    check_text("selector", selector, optional=True)
    check_type("filters", filters, Mapping, type(None))
    check_flag("strict", strict)
    asked: dict[str, Any] = dict(filters or {})
    if selector is not None:
        if not selector.strip():
            raise ValueError("a selector is not empty; None is for every message")
        if SELECTOR in asked:
            raise ValueError(f"the filter {SELECTOR!r} is the selector: give one of them")
        asked[SELECTOR] = selector
    checked = {_filter_name(name): _described(name, value) for name, value in asked.items()}
    if OFFSET in checked:
        check_offset(checked[OFFSET].value)
    return SourceParams(checked, target_capabilities(capabilities), strict=strict)


def _filter_name(name: object) -> str:
    if not isinstance(name, str) or not name or not name.isascii():
        raise TypeError(f"filters: the name of a filter is a string of ASCII characters, not {quoted(name)}")
    check_text("filters", name)
    return str(name)


def _described(name: str, value: Any) -> proton.Described:
    """Return the filter in the form that proton reads back, to compare it with the peer's."""
    if value is None:
        raise TypeError(f"filters: the filter {quoted(name)} has no value")
    if not isinstance(value, proton.Described):
        value = proton.Described(proton.symbol(name), value)
    data = proton.Data()
    try:
        data.put_object(value)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"filters: AMQP cannot carry the filter {quoted(name)}: {quoted(value.value)}"
        ) from error
    data.rewind()
    data.next()
    read: Any = data.get_object()
    return cast("proton.Described", read)


def _same(asked: proton.Described, granted: Any) -> bool:
    if not isinstance(granted, proton.Described):
        return bool(asked.value == granted)
    one, other = asked.descriptor, granted.descriptor
    comparable = isinstance(one, str) == isinstance(other, str)
    return bool(asked.value == granted.value and (one == other or not comparable))


def _not_supported(
    address: str | None, missing: tuple[str, ...], other: Mapping[str, Any]
) -> FilterNotSupported:
    reasons = []
    if missing:
        reasons.append(f"ignores {', '.join(map(quoted, missing))}")
    reasons += [
        f"answers {quoted(name)} with {quoted(getattr(each, 'value', each))}" for name, each in other.items()
    ]
    why = " and ".join(reasons)
    message = f"the primary does not filter the messages of {quoted(address)}: it {why}; strict=False goes on"
    return FilterNotSupported(message, (*missing, *other))
