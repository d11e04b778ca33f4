"""A selector: a text that is parsed once and applied to many messages."""

from __future__ import annotations

from broker_stub.queueing.selectors.conditions import Lookup
from broker_stub.queueing.selectors.fields import Fields
from broker_stub.queueing.selectors.parser import Parser


class Selector:
    """A condition on messages.

    :param bounded: refuse expensive patterns; False for a selector that the cluster has already, because a
        member that refuses it could not load its queues.
    :raises SelectorError: when the text is not a selector; says where.
    """

    __slots__ = ("_matches", "text")

    def __init__(self, text: str, *, bounded: bool = True) -> None:
        self.text = text
        self._matches = Parser(text, bounded=bounded).parse()

    def selects(self, data: bytes) -> bool:
        """Return True if an encoded message meets the condition; False for bytes that are not a message."""
        fields = Fields(data)
        return self.holds(fields.value)

    def holds(self, lookup: Lookup) -> bool:
        """Return True if the condition is true.

        :param lookup: returns the value of an identifier, ``None`` for unknown.
        """
        return self._matches(lookup) is True
