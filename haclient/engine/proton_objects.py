"""proton's objects of one connection: made together, bound to each other, and released together.

proton reports only in its log that it has given up (``ProtonLog``).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cproton
import proton
from cproton_ffi import ffi, lib
from proton import symbol

from haclient.engine.heartbeat import idle_timeout
from haclient.engine.reporting_transport import ReportingTransport
from haclient.engine.settings import Settings
from haclient.outcome import Outcome

if TYPE_CHECKING:
    from haclient.engine.links import Link

_GAVE_UP, _WARNING, _ERROR = "ERROR: process error", "WARNING: ", "ERROR: "
SLACK = 2
"""A client accepts its credit, and ``SLACK - 1`` times its largest credit above that.  When RabbitMQ 3.10
receives a Flow, it does not count the messages that are on their way from the queue.  It starts a new count
when the leader of a queue moves.
"""


class ProtonObjects:
    """The connection, its transport, and the collector of its events."""

    __slots__ = ("collector", "connection", "transport")

    def __init__(self, settings: Settings) -> None:
        server = settings.sasl_server is not None
        self.connection = proton.Connection()
        self.transport = ReportingTransport(proton.Transport.SERVER if server else proton.Transport.CLIENT)
        self.collector = proton.Collector()
        self.connection.collect(self.collector)
        self.connection.container = settings.container_id
        if settings.hostname:
            self.connection.hostname = settings.hostname
        self.transport.max_frame_size = settings.max_frame_size
        self.transport.idle_timeout = idle_timeout(settings.heartbeat)
        if settings.channel_max is not None:
            self.transport.channel_max = settings.channel_max
        self.transport.bind(self.connection)

    def open(
        self, settings: Settings, *, offered: tuple[str, ...] | None, properties: dict[str, Any] | None
    ) -> None:
        """Make the Open; ``None`` takes the value of the settings."""
        connection = self.connection
        properties = dict(settings.properties) if properties is None else properties
        offered = settings.offered_capabilities if offered is None else offered
        connection.properties = {symbol(key): value for key, value in properties.items()} or None
        connection.offered_capabilities = [symbol(name) for name in offered] or None
        connection.desired_capabilities = [symbol(name) for name in settings.desired_capabilities] or None
        connection.open()  # copies them into C, and an idle connection does not need the Python objects
        connection.properties = connection.offered_capabilities = connection.desired_capabilities = None

    def release(self) -> None:
        """Release the objects: links and sessions are freed with their connection."""
        self.transport.unbind()
        self.collector.release()
        lib.pn_connection_collect(self.connection._impl, ffi.NULL)
        lib.pn_connection_release(self.connection._impl)


class ProtonLog:
    """The log of one transport of proton.

    proton sometimes cannot write a frame, as for a link beyond the peer's handle-max or a session beyond its
    channel-max.  It then logs ``process error -2``, and sends nothing but heartbeats from then on: no event,
    no end of the stream.  This log therefore ends the connection with the reason.  Other lines go to standard
    error, as proton does by default: above all the output of ``PN_TRACE_FRM=1``.

    The log holds no strong reference to the engine, because proton keeps the log as long as the transport.

    :param gave_up: a method, called with the reason.
    """

    __slots__ = ("_gave_up", "_why")

    def __init__(self, gave_up: Callable[[proton.Condition], None]) -> None:
        self._gave_up = weakref.WeakMethod(gave_up)
        self._why = ""
        """The last warning: proton logs the reason before the error."""

    def __call__(self, transport: proton.Transport, line: str) -> None:
        """Handle a line that proton logs."""
        gave_up = self._gave_up()
        if gave_up is not None and line.startswith(_GAVE_UP):
            why = self._why or line.removeprefix(_ERROR)
            gave_up(proton.Condition("amqp:internal-error", f"proton can send nothing more: {why}"))
            return
        if line.startswith(_WARNING):
            self._why = line.removeprefix(_WARNING)
        sys.stderr.write(f"[{id(transport):#x}]: {line}\n")


def write_outcome(delivery: Any, outcome: Outcome) -> None:
    """Give a delivery, by pointer, the fields of an outcome."""
    local = lib.pn_delivery_local(delivery)
    if outcome.condition is not None:
        condition = lib.pn_disposition_condition(local)
        cproton.pn_condition_set_name(condition, outcome.condition)
        cproton.pn_condition_set_description(condition, outcome.description)
    lib.pn_disposition_set_failed(local, outcome.delivery_failed)
    lib.pn_disposition_set_undeliverable(local, outcome.undeliverable_here)
    if outcome.annotations:
        lib.pn_data_decode(
            lib.pn_disposition_annotations(local), outcome.annotations, len(outcome.annotations)
        )


def close_link(link: Link, condition: proton.Condition | None, *, keep: bool | None) -> None:
    """Detach a link from this side.

    :param keep: let the peer keep the terminus; ``closed`` destroys it (AMQP 1.0 part 2, section 2.6.6).
        ``None`` keeps a durable source.
    """
    if link.dead:
        return
    if keep is None:
        keep = _is_durable(link.endpoint.source)
    link.closed_here = True
    if condition is not None:
        link.endpoint.condition = condition
    if keep:
        link.endpoint.detach()
    else:
        link.endpoint.close()
    link._engine.wake()


def _is_durable(terminus: proton.Terminus) -> bool:
    """Return whether a terminus outlives its link (part 3, sections 3.5.5 and 3.5.6)."""
    return bool(terminus.durability) or terminus.expiry_policy == proton.Terminus.EXPIRE_NEVER


def change_credit(link: Any, change: int, withheld: int) -> int:
    """Change the credit of a receiver, but never to less than 0.

    A peer that sent too much leaves proton with a credit below 0, which proton would write as more than four
    thousand million.  The missing credit up to 0 is added, and withheld from later grants.

    :param withheld: to subtract from this grant.
    :returns: the amount to withhold from the next grant.
    """
    paid = min(withheld, max(change, 0))
    lib.pn_link_flow(link, change - paid)
    missing: int = lib.pn_link_queued(link) - lib.pn_link_credit(link)
    if missing <= 0:
        return withheld - paid
    lib.pn_link_flow(link, missing)
    return withheld - paid + missing
