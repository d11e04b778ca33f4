"""Operations on messages as spans and measurements, by OpenTelemetry's conventions for messaging.

An operation is ``send``, ``receive`` or ``process``.  A span's name is the operation and the address of the
link.  The name lacks the address if there is none, or if the peer assigned it (a dynamic one).
"""

from __future__ import annotations

import contextlib
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import proton
from opentelemetry import metrics, trace
from opentelemetry.context import Context

from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.amqp_values.message import SendableBody
from haclient.errors import HaclientError, MessageNotAccepted
from haclient.printable.log import get_logger
from haclient.telemetry.opentelemetry import OPERATION_SECONDS, SYSTEM, Attributes
from haclient.telemetry.redact import Redactor
from haclient.tracing.propagation import Propagation, span_context

logger = get_logger("haclient")

_KINDS = {
    "send": trace.SpanKind.PRODUCER,
    "receive": trace.SpanKind.CLIENT,
    "process": trace.SpanKind.CONSUMER,
}


class Instruments:
    """The metrics of the conventions."""

    def __init__(self, meter: metrics.Meter) -> None:
        self.operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of an operation with messages.",
            explicit_bucket_boundaries_advisory=OPERATION_SECONDS,
        )
        self.processing = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of processing a message.",
            explicit_bucket_boundaries_advisory=OPERATION_SECONDS,
        )
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages sent.")
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages received."
        )


@dataclass(frozen=True, slots=True)
class TracingContext:
    """The common data of one connection's traced links.

    :param endpoint: returns the member that the connection is connected to.
    """

    tracer: trace.Tracer
    instruments: Instruments
    propagation: Propagation
    redactor: Redactor
    client_id: str
    endpoint: Callable[[], Endpoint | None]

    def link(self, address: str | None, *, dynamic: bool = False) -> Link:
        """Return one link.

        :param dynamic: whether the peer assigns its address.
        """
        destination: Attributes = {"messaging.destination.temporary": True} if dynamic else {}
        if address is not None and not dynamic:
            destination["messaging.destination.name"] = address
        return Link(self, destination)

    def server(self) -> Attributes:
        """Return the attributes of the currently connected member."""
        endpoint = self.endpoint()
        host = None if endpoint is None else self.redactor.name(endpoint.host)
        return (
            {} if endpoint is None or host is None else {"server.address": host, "server.port": endpoint.port}
        )


class Link:
    """The operations of one sender or receiver."""

    def __init__(self, context: TracingContext, destination: Attributes) -> None:
        self._context = context
        self._destination = destination

    def send(self, message: proton.Message | SendableBody) -> Operation:
        """Begin to send; the operation's context must be current while the message is encoded."""
        return self._begin("send", message if isinstance(message, proton.Message) else None)

    @contextlib.contextmanager
    def sending(self, message: proton.Message | SendableBody) -> Iterator[None]:
        """Trace a send that waits for the outcome."""
        with self.send(message).whole():
            yield

    def receive(self) -> Operation:
        """Begin to wait for a message.  There is a span only once a message arrived."""
        return Operation(self._context, "receive", self._attributes("receive"))

    @contextlib.contextmanager
    def processing(self, message: proton.Message) -> Iterator[trace.Span]:
        """Process a message; spans that start inside are below this one."""
        operation = self._begin("process", message)
        with operation.whole():
            yield operation.span

    def _begin(self, name: str, message: proton.Message | None) -> Operation:
        operation = Operation(self._context, name, self._attributes(name))
        operation.start(message)
        return operation

    def _attributes(self, name: str) -> Attributes:
        return {
            **SYSTEM,
            "messaging.operation.name": name,
            "messaging.operation.type": name,
            **self._destination,
            **self._context.server(),
        }


class Operation:
    """One operation in progress.  None of its methods raises because of tracing."""

    def __init__(self, context: TracingContext, name: str, attributes: Attributes) -> None:
        self.span: trace.Span = trace.INVALID_SPAN
        self._context = context
        self._name = name
        self._attributes = attributes
        self._began = time.perf_counter()
        self._start_time = time.time_ns()

    def start(self, message: proton.Message | None) -> None:
        """Start the span, with a link to the context of the message."""
        with _guard():
            extracted = Context() if message is None else self._context.propagation.context(message)
            origin = span_context(extracted)
            alone = self._name == "process" and not trace.get_current_span().get_span_context().is_valid
            ids: Attributes = {"messaging.client.id": self._context.client_id}
            if message is not None and isinstance(message.id, str | int):
                ids["messaging.message.id"] = str(message.id)
            self.span = self._context.tracer.start_span(
                " ".join(str(word) for word in (self._name, self._destination) if word),
                # The span of processing has the sender as its parent, unless another span is current.
                extracted if alone and origin.is_valid else None,
                _KINDS[self._name],
                {**self._attributes, **ids},
                [trace.Link(origin)] if origin.is_valid else None,
                self._start_time,
            )

    def arrived(self, message: Callable[[], proton.Message]) -> None:
        """Record the arrival of a message."""
        with _guard():
            self.start(message())
        self.end()

    def failed(self, error: BaseException) -> None:
        """Record that the wait for a message failed for good."""
        self.start(None)
        self.end(error)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the span the current one."""
        with trace.use_span(self.span, record_exception=False, set_status_on_exception=False):
            yield

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Make the operation last as long as the body of the ``with`` statement."""
        with self.current():
            try:
                yield
            except BaseException as error:
                self.end(error)
                raise
            self.end()

    def settled(self, future: Any) -> None:
        """End the operation with the outcome of a message."""
        self.end(CancelledError() if future.cancelled() else future.exception())

    def end(self, error: BaseException | None = None) -> None:
        """End the operation."""
        with _guard():
            seconds = time.perf_counter() - self._began
            facts = {**self._attributes, **self._context.server()}
            if error is not None:
                facts["error.type"] = type(error).__name__
                self.span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            self.span.set_attributes(facts)
            self.span.end()
            self._measure(seconds, facts, error)

    def _measure(self, seconds: float, facts: Attributes, error: BaseException | None) -> None:
        instruments = self._context.instruments
        if self._name == "process":
            instruments.processing.record(seconds, facts)
            return
        instruments.operation.record(seconds, facts)
        if self._name == "receive":
            instruments.consumed.add(error is None, facts)
        elif not _never_left(error):
            instruments.sent.add(1, facts)

    @property
    def _destination(self) -> object:
        return self._attributes.get("messaging.destination.name")


def _never_left(error: BaseException | None) -> bool:
    refused = isinstance(error, MessageNotAccepted)
    return isinstance(error, HaclientError) and error.delivered is False and not refused


@contextlib.contextmanager
def _guard() -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("a message could not be traced")
