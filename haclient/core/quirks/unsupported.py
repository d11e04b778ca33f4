"""What a receiver asks for, and its peer does not do: the receiver fails before it has any credit.

A peer may answer an Attach with everything that it was asked for, and apply nothing of it.  With RabbitMQ a
browse is such a request: the receiver takes the messages, a quorum queue counts each return as a delivery,
and drops the message when its delivery limit is reached.  So it is not attached at all.  A program for
proton gets the link that it asked for, and a warning is logged.

Source: AMQP 1.0 part 3, sections 3.5.3 (source) and 3.5.7 (distribution modes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import proton

from haclient.core.attach.refusals import link_error
from haclient.core.quirks.products import Quirk, quirks_of
from haclient.core.quirks.workarounds import advice
from haclient.error_catalog.base import quoted
from haclient.errors import HaclientError

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

_NOT_IMPLEMENTED = "amqp:not-implemented"


def before_attach(
    engine: Engine, address: str | None, *, browses: bool, opened: bool
) -> HaclientError | None:
    """Return why a receiver must not be attached to this peer, by what the peer is known to do.

    :param browses: it asks for distribution-mode *copy*.
    :param opened: it was attached before.
    """
    properties = engine.peer_properties
    if browses and Quirk.IGNORES_BROWSE in quirks_of(properties):
        product = properties["product"]
        return _no_browse(
            address,
            f"{product} would deliver them as to any receiver, and its quorum queues drop or dead-letter a "
            "message after some deliveries; a stream needs no browse, for reading removes nothing from it",
            opened=opened,
        )
    return None


def warn_of_browse(engine: Engine, endpoint: proton.Receiver) -> None:
    """Warn of a browse by a program for proton that this peer is known to ignore."""
    if endpoint.source.distribution_mode == proton.Terminus.DIST_MODE_COPY:
        error = before_attach(engine, endpoint.source.address, browses=True, opened=False)
        if error is not None:
            advice.warning("%s: %s", endpoint.name, error.args[0])


def browse_refusal(endpoint: proton.Receiver, address: str | None, *, opened: bool) -> HaclientError | None:
    """Return why the source that the peer answered with is not the browse that was asked for."""
    asked, granted = endpoint.source.distribution_mode, endpoint.remote_source.distribution_mode
    if asked == proton.Terminus.DIST_MODE_COPY and granted == proton.Terminus.DIST_MODE_MOVE:
        return _no_browse(address, "it answers with distribution-mode move", opened=opened)
    return None


def _no_browse(address: str | None, why: str, *, opened: bool) -> HaclientError:
    message = f"the primary does not browse the messages of {quoted(address)}: {why}"
    return link_error(message, _NOT_IMPLEMENTED, opened=opened)
