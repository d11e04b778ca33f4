"""Traced links of the asyncio API; see ``haclient.tracing``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import proton
from opentelemetry import trace

from haclient import aio
from haclient.engine.amqp_values.message import SendableBody
from haclient.errors import HaclientError, ReceiveTimeout
from haclient.outcome import Outcome
from haclient.tracing.operations import Link, TracingContext


class AsyncTraced:
    """Makes traced links of a connection."""

    def __init__(self, connection: aio.Connection, context: TracingContext) -> None:
        self._connection = connection
        self._context = context

    async def create_sender(self, address: str | None, **arguments: Any) -> AsyncTracedSender:
        """Create a sender, with the arguments of ``aio.Connection.create_sender``."""
        hook = self._context.propagation.additions
        sender = await self._connection.create_sender(address, on_encode=hook, **arguments)
        return AsyncTracedSender(sender, self._context.link(address))

    async def create_receiver(
        self, address: str | None, *, dynamic: bool = False, **arguments: Any
    ) -> AsyncTracedReceiver:
        """Create a receiver, with the arguments of ``aio.Connection.create_receiver``."""
        receiver = await self._connection.create_receiver(address, dynamic=dynamic, **arguments)
        return AsyncTracedReceiver(receiver, self._context.link(address, dynamic=dynamic))


class AsyncTracedSender:
    """A sender whose messages are traced; see ``aio.Sender``."""

    def __init__(self, sender: aio.Sender, link: Link) -> None:
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

    async def send(self, message: proton.Message | SendableBody, **arguments: Any) -> Outcome:
        """Send and wait until the primary has settled the message; see ``aio.Sender.send``."""
        with self._link.sending(message):
            return await self._sender.send(message, **arguments)

    async def submit(
        self, message: proton.Message | SendableBody, **arguments: Any
    ) -> asyncio.Future[Outcome]:
        """Send without waiting for the outcome; see ``aio.Sender.submit``."""
        operation = self._link.send(message)
        with operation.current():
            try:
                future = await self._sender.submit(message, **arguments)
            except BaseException as error:
                operation.end(error)
                raise
        future.add_done_callback(operation.settled)
        return future

    def submit_nowait(
        self, message: proton.Message | SendableBody, **arguments: Any
    ) -> asyncio.Future[Outcome]:
        """Send without waiting for anything; see ``aio.Sender.submit_nowait``."""
        operation = self._link.send(message)
        with operation.current():
            try:
                future = self._sender.submit_nowait(message, **arguments)
            except BaseException as error:
                operation.end(error)
                raise
        future.add_done_callback(operation.settled)
        return future

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything sent so far is settled; see ``aio.Sender.flush``."""
        await self._sender.flush(timeout=timeout)

    async def close(self) -> None:
        """Close the link."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sender.__aexit__(kind, error, trace)


class AsyncTracedReceiver:
    """A receiver whose messages are traced, and an asynchronous iterator; see ``aio.Receiver``."""

    def __init__(self, receiver: aio.Receiver, link: Link) -> None:
        self._receiver = receiver
        self._link = link

    @property
    def address(self) -> str | None:
        """Return the address of the node it receives from."""
        return self._receiver.address

    async def receive(self, *, timeout: float | None = None) -> aio.Delivery:
        """Return the next delivery; see ``aio.Receiver.receive``."""
        return await self._traced(lambda: self._receiver.receive(timeout=timeout))

    def processing(self, delivery: aio.Delivery) -> AbstractContextManager[trace.Span]:
        """Trace the body of a ``with`` statement as the processing of a delivery.

        The span is below the sender's.
        """
        return self._link.processing(delivery.message)

    async def close(self) -> None:
        """Close the link."""
        await self._receiver.close()

    def __aiter__(self) -> AsyncIterator[aio.Delivery]:
        return self

    async def __anext__(self) -> aio.Delivery:
        return await self._traced(self._receiver.__anext__)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _traced(self, receive: Callable[[], Any]) -> aio.Delivery:
        operation = self._link.receive()
        try:
            delivery: aio.Delivery = await receive()
        except ReceiveTimeout:
            raise
        except HaclientError as error:
            operation.failed(error)
            raise
        operation.arrived(lambda: delivery.message)
        return delivery
