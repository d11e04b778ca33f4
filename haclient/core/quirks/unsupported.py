"""Checks for features that a receiver asks for and its peer lacks: it fails before it has any credit.

A peer may answer an Attach with everything that was asked for, and apply nothing of it.  With RabbitMQ a
browse is such a request: the receiver takes the messages, a quorum queue counts each return as a delivery,
and drops the message when its delivery limit is reached.  So the client does not attach such a receiver.  A
program for proton gets the link that it asked for, and a warning is logged.

Source: AMQP 1.0 part 3, sections 3.5.3 (source) and 3.5.7 (distribution modes).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import proton

from haclient.core.attach.refusals import link_error
from haclient.core.attach.streams import OFFSET
from haclient.core.quirks.products import Quirk, quirks_of
from haclient.core.quirks.workarounds import advice
from haclient.engine import peer_fields
from haclient.error_catalog.base import quoted
from haclient.errors import ConfirmNotSupported, FilterNotSupported, HaclientError

if TYPE_CHECKING:
    from haclient.engine.protocol import Engine

_NOT_IMPLEMENTED = "amqp:not-implemented"
# Filters of streams; on a queue the peer echoes them, too, and they have no effect.
_APPLIED = frozenset({OFFSET, "rabbitmq:stream-filter", "rabbitmq:stream-match-unfiltered"})


@dataclass(frozen=True, slots=True)
class Asked:
    """The features that a receiver asks for.

    :param browses: distribution-mode *copy*.
    :param confirms: confirmed accepts.
    :param filters: names of the filters that the peer must apply.
    """

    browses: bool = False
    confirms: bool = False
    filters: Collection[str] = ()


def before_attach(engine: Engine, address: str | None, asked: Asked, *, opened: bool) -> HaclientError | None:
    """Return why a receiver must not be attached to this peer, by the known quirks of the peer.

    :param opened: whether it was attached before.
    """
    quirks, product = quirks_of(engine.peer_properties), engine.peer_properties.get("product")
    if asked.browses and Quirk.IGNORES_BROWSE in quirks:
        return _no_browse(
            address,
            f"{product} would deliver them as to any receiver, and its quorum queues drop or dead-letter a "
            "message after some deliveries; a stream needs no browse, for reading removes nothing from it",
            opened=opened,
        )
    if asked.confirms and Quirk.NO_CONFIRM in quirks:
        return ConfirmNotSupported(
            f"the primary does not confirm what is accepted from {quoted(address)}: {product} has no "
            "rcv-settle-mode second"
        )
    echoed = tuple(name for name in asked.filters if name not in _APPLIED)
    if echoed and Quirk.ECHOES_FILTERS in quirks:
        names = ", ".join(map(quoted, echoed))
        return FilterNotSupported(
            f"the primary does not filter the messages of {quoted(address)}: {product} answers with {names} "
            "and delivers every message; strict=False goes on",
            echoed,
        )
    return None


def warn_of(engine: Engine, endpoint: proton.Receiver) -> None:
    """Warn if a program for proton asks for a feature that this peer is known to lack."""
    asked = Asked(browses=_is_browse(endpoint.source), filters=tuple(peer_fields.filters(endpoint.source)))
    error = before_attach(engine, endpoint.source.address, asked, opened=False)
    if error is not None:
        advice.warning("%s: %s", endpoint.name, error.args[0])


def browse_refusal(endpoint: proton.Receiver, address: str | None, *, opened: bool) -> HaclientError | None:
    """Return an error if the peer's Attach grants no browse although the receiver asked for one."""
    granted = endpoint.remote_source.distribution_mode
    if _is_browse(endpoint.source) and granted == proton.Terminus.DIST_MODE_MOVE:
        return _no_browse(address, "it answers with distribution-mode move", opened=opened)
    return None


def _is_browse(source: proton.Terminus) -> bool:
    return bool(source.distribution_mode == proton.Terminus.DIST_MODE_COPY)


def _no_browse(address: str | None, why: str, *, opened: bool) -> HaclientError:
    message = f"the primary does not browse the messages of {quoted(address)}: {why}"
    return link_error(message, _NOT_IMPLEMENTED, opened=opened)
