"""The duplicate-detection ids of the drop-in, which its users never see.

A message that a ledger sends again carries the id it had, so that a broker drops the second copy
(``engine.codec``).  A program written for proton prints the properties it sent, so an id that was
made here, by this API or by ours, is taken off again where the drop-in receives it.  Any other id is the
application's own, or another client's, and stays to be seen; but it belongs to the send that it came with,
and a program that sends the received message on does not send the id again.
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
        """An id that no other message has."""
        return f"{self._stem}{next(self._numbers)}"


def unmark(message: proton.Message) -> None:
    """Take off an id that was made here, and note any other."""
    properties = message.properties
    if not properties or DUPLICATE_ID_PROPERTY not in properties:
        return
    duplicate_id = properties[DUPLICATE_ID_PROPERTY]
    if not codec.is_automatic(duplicate_id):
        if isinstance(duplicate_id, memoryview):
            # A view into the message's own memory, which is written anew when the message is encoded.
            properties[DUPLICATE_ID_PROPERTY] = duplicate_id = memoryview(bytes(duplicate_id))
        codec.mark_received(message, duplicate_id)
        return
    del properties[DUPLICATE_ID_PROPERTY]
    if not properties:
        message.properties = None
