"""Attaches a link with an unsettled map, by which peers resolve what a lost connection left in doubt.

Rules
-----
* The receiver names the deliveries that it gave an outcome and was not told that they are settled, and the
  sender answers with those of which it knows what became of them.
* proton writes no such map, so the frame is changed on its way to the socket (``wire.attach_frame``).  That
  is not possible inside proton's own TLS: then there is no map, and every doubt stays one.

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

    :param states: the codes of delivery states.
    :returns: how many of the states, from the first one on, are in the map: a frame holds no more.
    :raises AttachTooLarge: (client) when it does not fit into the peer's frames even without them.
    """
    if not states or engine.settings.tls_domain is not None:
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
