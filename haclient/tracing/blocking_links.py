"""Traced links of the blocking API; see ``haclient.tracing``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import proton
from opentelemetry import trace

from haclient import blocking
from haclient.engine.amqp_values.message import SendableBody
from haclient.errors import HaclientError, ReceiveTimeout
from haclient.outcome import Outcome
from haclient.tracing.operations import Link, TracingContext


class Traced:
    """Makes traced links of a connection."""

    def __init__(self, connection: blocking.Connection, context: TracingContext) -> None:
        self._connection = connection
        self._context = context

    def create_sender(self, address: str | None, **arguments: Any) -> TracedSender:
        """Create a sender, with the arguments of ``blocking.Connection.create_sender``."""
        hook = self._context.propagation.additions
        sender = self._connection.create_sender(address, on_encode=hook, **arguments)
        return TracedSender(sender, self._context.link(address))

    def create_receiver(
        self, address: str | None, *, dynamic: bool = False, **arguments: Any
    ) -> TracedReceiver:
        """Create a receiver, with the arguments of ``blocking.Connection.create_receiver``."""
        receiver = self._connection.create_receiver(address, dynamic=dynamic, **arguments)
        return TracedReceiver(receiver, self._context.link(address, dynamic=dynamic))


class TracedSender:
    """A sender whose messages are traced; see ``blocking.Sender``."""

    def __init__(self, sender: blocking.Sender, link: Link) -> None:
        self._sender = sender
        self._link = link

    @property
    def address(self) -> str | None:
        """Return the address of the node it sends to."""
        return self._sender.address

    @property
    def unsettled(self) -> int:
        """Return the number of messages sent and not settled yet."""
        return self._sender.unsettled

    def send(self, message: proton.Message | SendableBody, **arguments: Any) -> Outcome:
        """Send and wait until the primary has settled the message; see ``blocking.Sender.send``."""
        with self._link.sending(message):
            return self._sender.send(message, **arguments)

    def submit(self, message: proton.Message | SendableBody, **arguments: Any) -> Future[Outcome]:
        """Send without waiting for the outcome; see ``blocking.Sender.submit``."""
        return self._traced(self._sender.submit, message, arguments)

    def submit_nowait(self, message: proton.Message | SendableBody, **arguments: Any) -> Future[Outcome]:
        """Send without waiting for anything; see ``blocking.Sender.submit_nowait``."""
        return self._traced(self._sender.submit_nowait, message, arguments)

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything sent so far is settled; see ``blocking.Sender.flush``."""
        self._sender.flush(timeout=timeout)

    def close(self) -> None:
        """Close the link."""
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sender.__exit__(kind, error, trace)

    def _traced(
        self,
        submit: Callable[..., Future[Outcome]],
        message: proton.Message | SendableBody,
        arguments: dict[str, Any],
    ) -> Future[Outcome]:
        operation = self._link.send(message)
        with operation.current():
            try:
                future = submit(message, **arguments)
            except BaseException as error:
                operation.end(error)
                raise
        future.add_done_callback(operation.settled)
        return future


class TracedReceiver:
    """A receiver whose messages are traced, and an iterator; see ``blocking.Receiver``."""

    def __init__(self, receiver: blocking.Receiver, link: Link) -> None:
        self._receiver = receiver
        self._link = link

    @property
    def address(self) -> str | None:
        """Return the address of the node it receives from."""
        return self._receiver.address

    def receive(self, *, timeout: float | None = None) -> blocking.Delivery:
        """Return the next delivery; see ``blocking.Receiver.receive``."""
        return self._traced(lambda: self._receiver.receive(timeout=timeout))

    def processing(self, delivery: blocking.Delivery) -> AbstractContextManager[trace.Span]:
        """Trace the body of a ``with`` statement as the processing of a delivery.

        The span is below the sender's.
        """
        return self._link.processing(delivery.message)

    def close(self) -> None:
        """Close the link."""
        self._receiver.close()

    def __iter__(self) -> Iterator[blocking.Delivery]:
        return self

    def __next__(self) -> blocking.Delivery:
        return self._traced(self._receiver.__next__)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _traced(self, receive: Callable[[], Any]) -> blocking.Delivery:
        operation = self._link.receive()
        try:
            delivery: blocking.Delivery = receive()
        except ReceiveTimeout:
            raise
        except HaclientError as error:
            operation.failed(error)
            raise
        operation.arrived(lambda: delivery.message)
        return delivery
