"""The duplicate-detection ids of the drop-in, which programs written for proton do not see.

A message that a ledger sends again keeps its id, so that a broker drops the second copy (``engine.codec``).
A program written for proton prints the properties it sent.  So an id made by this API or haclient's other
APIs is removed when the drop-in receives it.

Any other id belongs to the application or another client, and stays visible.  It identifies one send: a
program that forwards the received message does not send the id again.
"""

from __future__ import annotations

import itertools

import proton

from haclient.engine import codec
from haclient.engine.codec import DUPLICATE_ID_PROPERTY


class Marker:
    """Makes the ids of one sender."""

    __slots__ = ("_numbers", "_stem")

    def __init__(self) -> None:
        self._stem = codec.automatic_ids()
        self._numbers = itertools.count(1)

    def next(self) -> str:
        """Return an id that no other message has."""
        return f"{self._stem}{next(self._numbers)}"


def unmark(message: proton.Message) -> None:
    """Remove an id that haclient made, and mark any other as received."""
    properties = message.properties
    if not properties or DUPLICATE_ID_PROPERTY not in properties:
        return
    duplicate_id = properties[DUPLICATE_ID_PROPERTY]
    if not codec.is_automatic(duplicate_id):
        if isinstance(duplicate_id, memoryview):
            # A view into the message's own memory, which is overwritten when the message is encoded.
            properties[DUPLICATE_ID_PROPERTY] = duplicate_id = memoryview(bytes(duplicate_id))
        codec.mark_received(message, duplicate_id)
        return
    del properties[DUPLICATE_ID_PROPERTY]
    if not properties:
        message.properties = None
