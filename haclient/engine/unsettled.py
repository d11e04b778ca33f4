"""Attaches a link with an unsettled map, which resolves deliveries that a lost connection left in doubt.

Rules
-----
* The receiver lists the deliveries that it gave an outcome without learning that they are settled.  The
  sender answers with the deliveries in that list whose result it knows.
* proton writes no such map, so the frame is changed on its way to the socket (``wire.attach_frame``).

Source: AMQP 1.0 part 2, sections 2.6.13 (resuming deliveries) and 2.7.3 (attach).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from haclient.engine import peer_fields
from haclient.engine.links import Link
from haclient.engine.wire import attach_frame

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

_NO_LIMIT = 2**32 - 1


def attach(engine: Engine, link: Link, states: Mapping[bytes, int]) -> int:
    """Send Attach, or answer the peer's, with the states of unsettled deliveries by tag.

    :param states: codes of delivery states.
    :returns: how many of the states, counted from the first, fit into the frame and are in the map.
    :raises AttachTooLarge: (client) when the Attach exceeds the peer's frame size even without a map.
    """
    if not states:
        engine.attach(link)
        return 0
    limit = engine.transport.remote_max_frame_size or _NO_LIMIT
    name = peer_fields.link_name(link)
    sent = 0

    def add(output: bytes) -> bytes:
        nonlocal sent
        output, sent = attach_frame.add_unsettled(output, name, states, limit)
        return output

    engine.change_output(partial(engine.attach, link), add)
    return sent
