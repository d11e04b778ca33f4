"""What a sender asks of its node, beside the address.

Source: AMQP 1.0 part 3, section 3.5.4 (target); the capabilities ``queue`` and ``topic`` are those of the JMS
mapping of Apache Qpid, by which Apache ActiveMQ Artemis chooses ANYCAST or MULTICAST for an address it makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import proton

from haclient.error_catalog.arguments import check_text, wrong_type
from haclient.error_catalog.base import quoted

# The annotation of its argument leaves out its own constant.
_UNDESCRIBED: Any = proton.UNDESCRIBED


def target_capabilities(names: Sequence[str], argument: str = "capabilities") -> tuple[proton.symbol, ...]:
    """The capabilities of a target.

    :param argument: for errors, what the application calls them.
    :raises TypeError: for a single string, and for what is no string.
    :raises ValueError: for text that is no AMQP symbol.
    """
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise wrong_type(argument, "a list of text", names)
    return tuple(_symbol(name, argument) for name in names)


def request_capabilities(target: proton.Terminus, names: tuple[proton.symbol, ...]) -> None:
    """Write them into the target of an Attach."""
    if names:
        target.capabilities.clear()
        target.capabilities.put_object(proton.Array(_UNDESCRIBED, proton.Data.SYMBOL, *names))


def _symbol(name: object, argument: str) -> proton.symbol:
    check_text(argument, name)
    assert isinstance(name, str)
    if not name or not name.isascii():
        raise ValueError(f"{argument}: {quoted(name)} is no symbol (ASCII text)")
    return proton.symbol(name)
