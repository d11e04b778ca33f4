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
* The message that the application holds is not changed: the context is put in while it is encoded, and what
  is sent again after a failover is those bytes.
* Neither bodies nor properties are written, and of an error only its type, for its words may quote them.
* What fails in tracing is logged, and the message is sent or handed out all the same.
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
    """Traces the messages of connections; one for a whole application.

    :param tracer_provider: whose spans; the global one by default.
    :param meter_provider: whose instruments; the global one by default.
    :param propagator: writes and reads the context; the global one by default.
    :param carrier: where it is written: in the message annotations, or in the application properties, for
        brokers that take no annotation without ``x-`` before its name, and for consumers that look there.
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
        """Makes senders and receivers of a connection whose messages are traced."""
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
