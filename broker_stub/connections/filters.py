"""The filters of a source, which select the messages that a receiver gets.

Rules
-----
* An unknown filter is left out of the answer, so the peer learns that it does not apply.
* A known but invalid filter is refused with the reason.
* The peer chooses the key of a filter. The descriptor, a symbol or a number, defines its kind.

Sources: AMQP 1.0 part 3, section 3.5.8 (filter set); the registry of filters of Apache Qpid
(``apache.org:selector-filter:string``, ``apache.org:no-local-filter:list``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import proton

from broker_stub.amqp.conditions import INVALID_FIELD
from broker_stub.queueing.message import Message, Selects
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.options import QueueOptions
from broker_stub.queueing.selectors import Selector, SelectorError
from haclient.engine import peer_fields

SELECTOR: Final = ("apache.org:selector-filter:string", 0x0000468C00000004)
NO_LOCAL: Final = ("apache.org:no-local-filter:list", 0x0000468C00000003)


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of one source that apply here.

    :param asked: the filters as the peer sent them, by its keys.
    :param selector: the condition on messages; ``None`` for all messages.
    :param no_local: the container id whose messages are excluded; empty for none.
    """

    asked: Mapping[str, proton.Described] = field(default_factory=dict)
    selector: Selector | None = None
    no_local: str = ""

    @property
    def selects(self) -> Selects | None:
        """The test whether a message passes the filters; ``None`` if all messages pass."""
        selector, no_local = self.selector, self.no_local
        if selector is None and not no_local:
            return None

        def selects(message: Message) -> bool:
            if no_local and message.producer == no_local:
                return False
            return selector is None or selector.selects(message.data)

        return selects

    @property
    def options(self) -> QueueOptions:
        """The same filters as options of a queue that an exchange fills."""
        return QueueOptions(selector=self.selector.text if self.selector else "", no_local=self.no_local)


NO_FILTERS: Final = Filters()


def filters(source: proton.Terminus, container: str) -> Filters:
    """Return the known filters of a source.

    :param container: the receiver's container id.
    :raises AddressRefusedError: if a filter is invalid, or the filters cannot be read.
    """
    if not peer_fields.has_filter(source):
        return NO_FILTERS
    given = peer_fields.filters(source)
    if not given:
        raise AddressRefusedError(INVALID_FIELD, "the filters of the source cannot be read")
    selectors = {name: each for name, each in given.items() if _is_of(each, SELECTOR)}
    if len(selectors) > 1:
        raise AddressRefusedError(INVALID_FIELD, f"several selectors: {', '.join(selectors)}")
    no_locals = {name: each for name, each in given.items() if _is_of(each, NO_LOCAL)}
    return Filters(
        asked={**selectors, **no_locals},
        selector=next((_selector(each.value) for each in selectors.values()), None),
        no_local=container if no_locals else "",
    )


def _is_of(value: Any, kind: tuple[str, int]) -> bool:
    descriptor = value.descriptor if isinstance(value, proton.Described) else None
    return isinstance(descriptor, str | int) and descriptor in kind


def _selector(text: Any) -> Selector:
    if not isinstance(text, str):
        raise AddressRefusedError(INVALID_FIELD, "a selector is a string")
    try:
        return Selector(text)
    except SelectorError as error:
        raise AddressRefusedError(INVALID_FIELD, str(error)) from error
