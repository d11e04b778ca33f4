"""Senders of the asyncio API; see ``haclient.aio``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

import proton

from haclient.api.deadlines import flush, full_window, limit, not_settled, window_full
from haclient.api.descriptions import describe_sender
from haclient.api.loop_affinity import check_loop, running_loop, wrong_loop
from haclient.api.pickling import not_picklable
from haclient.api.send_futures import AsyncSendFuture
from haclient.api.send_many import Batch, check, note, outcomes, take
from haclient.cluster_url.options import Options
from haclient.core.ledger import Entry
from haclient.core.message_encoder import MessageEncoder
from haclient.core.sender import SenderCore
from haclient.engine.amqp_values.message import SendableBody
from haclient.engine.codec import duplicate_id_of
from haclient.errors import DeadlineExceeded
from haclient.outcome import Outcome


class Sender:
    """Sends messages to one node, across failovers.

    As a context manager it flushes at the end of the block, and closes; after an exception or a cancellation
    it only closes.
    """

    __reduce__ = not_picklable

    def __init__(
        self, core: SenderCore, encoder: MessageEncoder, options: Options, connection: object
    ) -> None:
        self._core = core
        self._connection = connection  # which must not be collected before this
        self._timeout = options.send_timeout
        self._call_timeout = options.call_timeout
        self._loop = asyncio.get_running_loop()
        self._encode = encoder.encode

    @property
    def address(self) -> str | None:
        """The node it sends to."""
        return self._core.address

    @property
    def unsettled(self) -> int:
        """Messages sent and not settled yet."""
        return len(self._core.ledger)

    async def send(
        self,
        message: proton.Message | SendableBody,
        *,
        timeout: float | None = None,
        durable: bool | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> Outcome:
        """Send and wait until the primary has settled it, across failovers.

        :param message: a message, or its body, which is encoded at once.  ``bytes`` become a data section;
            ``str``, numbers, ``bool``, ``datetime`` with a time zone, ``UUID``, ``list`` and ``dict`` an
            amqp-value.
        :param timeout: seconds; the URL's ``send_timeout`` by default, which is none, as ``math.inf`` is.
        :param durable: whether the message survives a failover; ``create_sender``'s by default.
        :param duplicate_id: that of an earlier send, which this one repeats (``SendTimeout`` has it): a
            broker with duplicate detection stores one message.  Made up when left out.
        :raises TypeError: for what AMQP cannot carry, with its path, such as ``body['items'][3]['price']``.
        :raises MessageNotAccepted: with the outcome, when the broker did not accept it.
        :raises MessageTooLarge: when it is larger than the primary takes.
        :raises SendTimeout: ``delivered`` says whether it may have arrived.
        :raises DeliveryUnknown: at most once only, when the connection was lost before the outcome.
        :raises LinkClosed: when the sender is closed.
        :raises ConnectionClosed: when the connection is closed; ``ConnectionGaveUp`` when it gave up.
        """
        if running_loop() is not self._loop:
            raise wrong_loop()
        core, data = self._core, self._encode(message, duplicate_id, durable=durable)
        seconds = self._timeout if timeout is None else limit(timeout)
        entry = None
        try:
            async with asyncio.timeout(seconds):
                if core.ledger.full:
                    await core.wait_window()
                future: asyncio.Future[Outcome] = self._loop.create_future()
                entry = core.submit(data, future)
                return await future
        except DeadlineExceeded:
            raise
        except TimeoutError:
            if entry is not None and (outcome := _known_outcome(entry, future)) is not None:
                return outcome
            if entry is None:
                raise not_settled(core, seconds, delivered=False, duplicate_id=duplicate_id) from None
            delivered, sent_with = core.withdraw(entry), duplicate_id_of(data)
            raise not_settled(core, seconds, delivered=delivered, duplicate_id=sent_with) from None
        except asyncio.CancelledError:
            if entry is not None:
                core.withdraw(entry)
            raise

    async def submit(
        self,
        message: proton.Message | SendableBody,
        *,
        timeout: float | None = None,
        durable: bool | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> asyncio.Future[Outcome]:
        """Send without waiting for the outcome, which the returned future will hold.

        Waits only while the window is full.  The future raises what ``send`` would raise, except
        ``SendTimeout``: it waits as long as the connection does.  Cancelling it withdraws a message that
        has not been sent yet.

        :param message: as for ``send``.
        :param durable: as for ``send``.
        :param duplicate_id: as for ``send``.
        :param timeout: seconds for the wait until the window has room, and only for that; by default as for
            ``send``.
        :raises SendTimeout: when the window stayed full.
        """
        if running_loop() is not self._loop:
            raise wrong_loop()
        core = self._core
        seconds = self._timeout if timeout is None else limit(timeout)
        data = self._encode(message, duplicate_id, durable=durable)
        if core.ledger.full:
            await self._wait_window(seconds, duplicate_id)
        return self._submit(data)

    def submit_nowait(
        self,
        message: proton.Message | SendableBody,
        *,
        durable: bool | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> asyncio.Future[Outcome]:
        """Send without waiting for anything; the returned future is that of ``submit``.

        :param message: as for ``send``.
        :param durable: as for ``send``.
        :param duplicate_id: as for ``send``.
        :raises WindowFull: when as many messages are unsettled as the option ``window`` allows.
        """
        check_loop(self._loop)
        core = self._core
        if core.error is None and core.ledger.full:
            raise full_window(core)
        return self._submit(self._encode(message, duplicate_id, durable=durable))

    async def send_many(
        self,
        messages: Iterable[proton.Message | SendableBody] | AsyncIterable[proton.Message | SendableBody],
        *,
        timeout: float | None = None,
        durable: bool | None = None,
    ) -> list[Outcome]:
        """Send messages one after another, and wait until the primary has settled them all.

        As many are unsettled at a time as the option ``window`` allows, and the iterable is read only as
        far.  A message that cannot be encoded is a result like any other, and the others are sent.  An
        exception of the iterable is raised when the messages before it have their outcomes, which its note
        counts.  A cancellation withdraws what is not on the wire.

        :param messages: messages or bodies, as for ``send``.
        :param timeout: seconds for the whole call; the URL's ``send_timeout`` by default, which is none.
        :param durable: as for ``send``.
        :returns: the outcomes, in order; all are *accepted*.
        :raises SendManyError: when a message was not accepted in time, or at all; ``results`` has what
            ``send`` would have returned or raised for each that was taken from the iterable.
        :raises SendTimeout: when the window stayed full, so that no message was taken.
        :raises LinkClosed: when the sender is closed, so that none was taken.
        :raises ConnectionClosed: when the connection is closed, so that none was taken.
        """
        check(messages, asynchronous=True)
        check_loop(self._loop)
        core, encode = self._core, self._encode
        seconds = self._timeout if timeout is None else limit(timeout)
        batch = Batch(core)
        failure: Exception | None = None
        try:
            async with asyncio.timeout(seconds):
                try:
                    await take(batch, core, messages, lambda message: encode(message, durable=durable))
                except Exception as error:  # noqa: BLE001 - raised below
                    failure = error
                if batch.unsettled:
                    settled = self._loop.create_future()
                    batch.when_unsettled(0, partial(_wake, settled))
                    await settled
        except TimeoutError:
            batch.expire(seconds)
        except BaseException:
            batch.abandon()
            raise
        if failure is not None:
            failure.add_note(note(batch))
            raise failure
        return outcomes(core, batch, seconds)

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything sent before is settled; what is sent meanwhile is not waited for.

        The outcome of each message is in its future, or was raised by its ``send``.

        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises SendTimeout: when it is not, in time.
        :raises LinkClosed: when the sender was closed before all of them had an outcome.
        :raises ConnectionClosed: when the connection was closed before; ``ConnectionGaveUp`` when it gave up.
        """
        check_loop(self._loop)
        await flush(self._core, limit(timeout, self._call_timeout))

    async def close(self) -> None:
        """Close the link, without waiting for anything.  Sends that wait fail with ``LinkClosed``."""
        check_loop(self._loop)
        self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._core.error is None:
                await self.flush()
        finally:
            await self.close()

    def __repr__(self) -> str:
        return describe_sender("haclient.aio", self._core, self.unsettled)

    def _submit(self, data: bytes) -> AsyncSendFuture:
        core, future = self._core, AsyncSendFuture(loop=self._loop)
        future.core, future.sender = core, self
        future.entry = core.submit(data, future)
        return future

    async def _wait_window(self, seconds: float | None, duplicate_id: str | bytes | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._core.wait_window()
        except DeadlineExceeded:
            raise
        except TimeoutError:
            raise window_full(self._core, seconds, duplicate_id) from None


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _known_outcome(entry: Entry[Any], future: asyncio.Future[Outcome]) -> Outcome | None:
    """The outcome that arrived before the call that waits for it could return; raises what it would raise."""
    if future.done() and not future.cancelled():
        return future.result()
    if isinstance(entry.late_outcome, BaseException):
        raise entry.late_outcome
    return entry.late_outcome
