"""What a sender asks of its node, beside the address.

Source: AMQP 1.0 part 3, section 3.5.4 (target); the capabilities ``queue`` and ``topic`` are those of the JMS
mapping of Apache Qpid, by which Apache ActiveMQ Artemis chooses ANYCAST or MULTICAST for an address it makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import proton

# The annotation of its argument leaves out its own constant.
_UNDESCRIBED: Any = proton.UNDESCRIBED


def target_capabilities(names: Sequence[str]) -> tuple[proton.symbol, ...]:
    """The capabilities of a target.

    :raises TypeError: for a single string, and for what is no string.
    :raises ValueError: for text that is no AMQP symbol.
    """
    if isinstance(names, str):
        raise TypeError(f"capabilities is a list of strings, not {names!r}")
    return tuple(map(_symbol, names))


def request_capabilities(target: proton.Terminus, names: tuple[proton.symbol, ...]) -> None:
    """Write them into the target of an Attach."""
    if names:
        target.capabilities.clear()
        target.capabilities.put_object(proton.Array(_UNDESCRIBED, proton.Data.SYMBOL, *names))


def _symbol(name: object) -> proton.symbol:
    if not isinstance(name, str):
        raise TypeError(f"a capability is a string, not {name!r}")
    if not name or not name.isascii():
        raise ValueError(f"a capability is a symbol (ASCII text), not {name!r}")
    return proton.symbol(name)
