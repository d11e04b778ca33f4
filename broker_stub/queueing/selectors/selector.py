"""A selector: a text that was parsed once, and is applied to many messages."""

from __future__ import annotations

from broker_stub.queueing.selectors.conditions import Lookup
from broker_stub.queueing.selectors.fields import Fields
from broker_stub.queueing.selectors.parser import Parser


class Selector:
    """A condition on messages.

    :raises SelectorError: when the text is no selector; says where.
    """

    __slots__ = ("_matches", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._matches = Parser(text).parse()

    def selects(self, data: bytes) -> bool:
        """Whether an encoded message meets the condition; bytes that are no message do not."""
        fields = Fields(data)
        return self.holds(fields.value)

    def holds(self, lookup: Lookup) -> bool:
        """Whether the condition is true.

        :param lookup: the value of an identifier, ``None`` for unknown.
        """
        return self._matches(lookup) is True
