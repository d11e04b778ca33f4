"""The filters of a source: which messages of a queue a receiver gets.

Rules
-----
* A filter that is not known here is left out of the answer, so the peer learns that it does not hold.
* One that is known and wrong is refused, with what is wrong about it.
* The key of a filter is a name of the peer's; what it is, its descriptor says: a symbol or a number.

Sources: AMQP 1.0 part 3, section 3.5.8 (filter set); the registry of filters of Apache Qpid
(``apache.org:selector-filter:string``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import proton

from broker_stub.amqp.conditions import INVALID_FIELD
from broker_stub.queueing.message import Message, Selects
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.selectors import Selector, SelectorError
from haclient.engine import peer_fields

SELECTOR: Final = ("apache.org:selector-filter:string", 0x0000468C00000004)


@dataclass(frozen=True, slots=True)
class Filters:
    """Those of one source that hold here.

    :param asked: as the peer gave them, by its names.
    :param selects: which messages meet them; ``None`` for all.
    :param selector: the text of the selector; empty for none.
    """

    asked: Mapping[str, proton.Described] = field(default_factory=dict)
    selects: Selects | None = None
    selector: str = ""


NO_FILTERS: Final = Filters()


def filters(source: proton.Terminus) -> Filters:
    """The filters that a source has, as far as they are known here.

    :raises AddressRefusedError: when one is wrong, or when they cannot be read.
    """
    if not peer_fields.has_filter(source):
        return NO_FILTERS
    given = peer_fields.filters(source)
    if not given:
        raise AddressRefusedError(INVALID_FIELD, "the filters of the source cannot be read")
    known = {name: each for name, each in given.items() if _is_selector(each)}
    if len(known) > 1:
        raise AddressRefusedError(INVALID_FIELD, f"several selectors: {', '.join(known)}")
    for name, each in known.items():
        return Filters({name: each}, *_selects(each.value))
    return NO_FILTERS


def _is_selector(value: Any) -> bool:
    descriptor = value.descriptor if isinstance(value, proton.Described) else None
    return isinstance(descriptor, str | int) and descriptor in SELECTOR


def _selects(text: Any) -> tuple[Selects, str]:
    if not isinstance(text, str):
        raise AddressRefusedError(INVALID_FIELD, "a selector is a string")
    try:
        selector = Selector(text)
    except SelectorError as error:
        raise AddressRefusedError(INVALID_FIELD, str(error)) from error

    def selects(message: Message) -> bool:
        return selector.selects(message.data)

    return selects, text
