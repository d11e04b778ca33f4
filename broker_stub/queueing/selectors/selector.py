"""A selector: a text that was parsed once, and is applied to many messages."""

from __future__ import annotations

from broker_stub.queueing.selectors.conditions import Lookup
from broker_stub.queueing.selectors.fields import Fields
from broker_stub.queueing.selectors.parser import Parser


class Selector:
    """A condition on messages.

    :param bounded: refuse what costs too much; not of a selector that the cluster has already, for it would
        keep a member from its queues.
    :raises SelectorError: when the text is no selector; says where.
    """

    __slots__ = ("_matches", "text")

    def __init__(self, text: str, *, bounded: bool = True) -> None:
        self.text = text
        self._matches = Parser(text, bounded=bounded).parse()

    def selects(self, data: bytes) -> bool:
        """Whether an encoded message meets the condition; bytes that are no message do not."""
        fields = Fields(data)
        return self.holds(fields.value)

    def holds(self, lookup: Lookup) -> bool:
        """Whether the condition is true.

        :param lookup: the value of an identifier, ``None`` for unknown.
        """
        return self._matches(lookup) is True
