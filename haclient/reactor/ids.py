"""The duplicate-detection ids of the drop-in, which its users never see.

A message that a ledger sends again carries the id it had, so that a broker drops the second copy
(``engine.codec``).  A program written for proton prints the properties it sent, so an id that was
made here is taken off again where the drop-in receives it.  Any other id is the application's own,
or another client's, and stays.
"""

from __future__ import annotations

import itertools
import uuid

import proton

from haclient.engine.codec import DUPLICATE_ID_PROPERTY

_STEM = "haclient.reactor:"


class Marker:
    """Makes the ids of one sender."""

    __slots__ = ("_numbers", "_stem")

    def __init__(self) -> None:
        self._stem = f"{_STEM}{uuid.uuid4()}-"
        self._numbers = itertools.count(1)

    def next(self) -> str:
        """An id that no other message has."""
        return f"{self._stem}{next(self._numbers)}"


def unmark(message: proton.Message) -> None:
    """Take off an id that was made here."""
    properties = message.properties
    if properties:
        value = properties.get(DUPLICATE_ID_PROPERTY)
        if isinstance(value, str) and value.startswith(_STEM):
            del properties[DUPLICATE_ID_PROPERTY]
            if not properties:
                message.properties = None
