"""The capabilities that a sender asks of its target.

Source: AMQP 1.0 part 3, section 3.5.4 (target).  The JMS mapping of Apache Qpid defines ``queue`` and
``topic``.  Apache ActiveMQ Artemis chooses ANYCAST or MULTICAST by them when it makes an address.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import proton

from haclient.error_catalog.arguments import check_text, wrong_type
from haclient.error_catalog.base import quoted

# proton's annotation of the argument omits its own constant.
_UNDESCRIBED: Any = proton.UNDESCRIBED


def target_capabilities(names: Sequence[str], argument: str = "capabilities") -> tuple[proton.symbol, ...]:
    """Return the capabilities of a target as symbols.

    :param argument: the application's name for them, for errors.
    :raises TypeError: for a single string, and for an entry that is no string.
    :raises ValueError: for text that is no AMQP symbol.
    """
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise wrong_type(argument, "a list of text", names)
    return tuple(_symbol(name, argument) for name in names)


def request_capabilities(target: proton.Terminus, names: tuple[proton.symbol, ...]) -> None:
    """Write capabilities into the target of an Attach."""
    if names:
        target.capabilities.clear()
        target.capabilities.put_object(proton.Array(_UNDESCRIBED, proton.Data.SYMBOL, *names))


def _symbol(name: object, argument: str) -> proton.symbol:
    check_text(argument, name)
    assert isinstance(name, str)
    if not name or not name.isascii():
        raise ValueError(f"{argument}: {quoted(name)} is no symbol (ASCII text)")
    return proton.symbol(name)
