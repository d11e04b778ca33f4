"""Messages in an application's traces, by OpenTelemetry.

    tracing = MessageTracing()
    traced = tracing.trace(connection)                 # of either API
    sender = traced.create_sender("orders")            # awaited on the asyncio API
    sender.send(message)                               # a span, whose context goes with the message
    receiver = traced.create_receiver("orders")
    delivery = receiver.receive()                      # a span with a link to that context
    with receiver.processing(delivery):                # a span below that context
        ...

Rules
-----
* The span of a send lasts until the primary has settled the message, across failovers; it is the creation
  context.  A message that has a context already (a forwarded one) keeps it, and the span is linked to it.
* The application's message object is not changed: the context is added to its encoded bytes, which are also
  sent again after a failover.
* Bodies and properties are never written.  Only the type of an error is written, because its text may quote
  them.
* A failure of tracing is logged; the message is still sent or delivered.
* Settling has no span of its own; it is part of the processing.

``telemetry.opentelemetry.OpenTelemetrySink`` reports the events of connections.

Sources: W3C "Trace Context: AMQP protocol" (draft), OpenTelemetry semantic conventions 1.43 for messaging;
needs the extra ``metrics``.
"""

from __future__ import annotations

from typing import overload

from opentelemetry import metrics, propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator

from haclient import aio, blocking
from haclient.telemetry.opentelemetry import SCOPE
from haclient.tracing.asyncio_links import AsyncTraced
from haclient.tracing.blocking_links import Traced
from haclient.tracing.operations import Instruments, TracingContext
from haclient.tracing.propagation import Carrier, Propagation

__all__ = ["MessageTracing"]


class MessageTracing:
    """Traces the messages of connections; one object for a whole application.

    :param tracer_provider: makes the spans; the global one by default.
    :param meter_provider: makes the instruments; the global one by default.
    :param propagator: writes and reads the context; the global one by default.
    :param carrier: the section that holds the context: message annotations or application properties.  Some
        brokers accept no annotation without ``x-`` before its name, and some consumers read only properties.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        carrier: Carrier = "annotations",
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._instruments = Instruments(metrics.get_meter(SCOPE, meter_provider=meter_provider))
        self._propagation = Propagation(propagator or propagate.get_global_textmap(), carrier)

    @overload
    def trace(self, connection: aio.Connection) -> AsyncTraced: ...
    @overload
    def trace(self, connection: blocking.Connection) -> Traced: ...
    def trace(self, connection: aio.Connection | blocking.Connection) -> AsyncTraced | Traced:
        """Return an object that makes traced senders and receivers of a connection."""
        factory = connection.factory
        context = TracingContext(
            self._tracer,
            self._instruments,
            self._propagation,
            factory.redactor,
            factory.client_id,
            lambda: connection.endpoint,
        )
        if isinstance(connection, aio.Connection):
            return AsyncTraced(connection, context)
        return Traced(connection, context)
