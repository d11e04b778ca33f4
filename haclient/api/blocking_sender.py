"""Senders of the blocking API; see ``haclient.blocking``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from time import monotonic
from types import TracebackType
from typing import Any, Self

import proton

from haclient.api.blocking_receiver import close_link
from haclient.api.deadlines import flush, full_window, limit, not_settled, window_full
from haclient.api.descriptions import describe_sender
from haclient.api.pickling import not_picklable
from haclient.api.send_futures import BlockingSendFuture
from haclient.api.send_many import END, Batch, check, note, outcomes
from haclient.cluster_url.options import Options
from haclient.core.message_encoder import MessageEncoder
from haclient.core.sender import SenderCore
from haclient.engine.amqp_values.message import SendableBody
from haclient.engine.codec import duplicate_id_of
from haclient.errors import ConnectionClosed, DeadlineExceeded, HaclientError, UnencodableValue
from haclient.factory.loop_thread import LoopThread
from haclient.outcome import Outcome


class Sender:
    """Sends messages to one node, across failovers.

    As a context manager it flushes at the end of the block, and closes; after an exception or a cancellation
    it only closes.
    """

    __reduce__ = not_picklable

    def __init__(
        self,
        thread: LoopThread,
        core: SenderCore,
        encoder: MessageEncoder,
        options: Options,
        connection: object,
    ) -> None:
        self._thread = thread
        self._core = core
        self._connection = connection  # which must not be collected before this
        self._timeout = options.send_timeout
        self._call_timeout = options.call_timeout
        self._encode = encoder.encode
        self._lock = threading.RLock()  # ``on_encode`` may send as well
        self._posted = 0
        self._submitted = 0

    @property
    def address(self) -> str | None:
        """The node it sends to."""
        return self._core.address

    @property
    def unsettled(self) -> int:
        """Messages sent and not settled yet."""
        return len(self._core.ledger) + self._posted - self._submitted

    def send(
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
        seconds = self._timeout if timeout is None else limit(timeout)
        deadline = None if seconds is None else monotonic() + seconds
        future, data = self._post(message, seconds, duplicate_id, durable=durable)
        try:
            return future.result(None if deadline is None else deadline - monotonic())
        except TimeoutError:
            delivered = None if future.done() else self._thread.call(future.withdraw())
            if future.done():  # its outcome arrived after the wait, or it is a TimeoutError itself
                return future.result()
            sent_with = duplicate_id_of(data)
            raise not_settled(self._core, seconds, delivered=delivered, duplicate_id=sent_with) from None
        except BaseException:
            if not future.done():
                self._thread.call(future.withdraw())
            raise

    def submit(
        self,
        message: proton.Message | SendableBody,
        *,
        timeout: float | None = None,
        durable: bool | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> Future[Outcome]:
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
        seconds = self._timeout if timeout is None else limit(timeout)
        return self._post(message, seconds, duplicate_id, durable=durable)[0]

    def submit_nowait(
        self,
        message: proton.Message | SendableBody,
        *,
        durable: bool | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> Future[Outcome]:
        """Send without waiting for anything; the returned future is that of ``submit``.

        :param message: as for ``send``.
        :param durable: as for ``send``.
        :param duplicate_id: as for ``send``.
        :raises WindowFull: when as many messages are unsettled as the option ``window`` allows.
        """
        return self._post(message, None, duplicate_id, durable=durable, wait=False)[0]

    def send_many(
        self,
        messages: Iterable[proton.Message | SendableBody],
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
        check(messages, asynchronous=False)
        self._thread.check()
        seconds = self._timeout if timeout is None else limit(timeout)
        deadline = None if seconds is None else monotonic() + seconds
        batch = Batch(self._core)
        failure: Exception | None = None
        try:
            try:
                self._take(batch, messages, deadline, durable=durable)
            except Exception as error:  # noqa: BLE001 - raised below
                failure = error
            if not self._wait_settled(batch, 0, deadline):
                self._thread.call(_on_loop(batch.expire, seconds))
        except BaseException:
            with contextlib.suppress(ConnectionClosed):
                self._thread.call(_on_loop(batch.abandon))
            raise
        if failure is not None:
            failure.add_note(note(batch))
            raise failure
        return outcomes(self._core, batch, seconds)

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything sent before is settled; what is sent meanwhile is not waited for.

        The outcome of each message is in its future, or was raised by its ``send``.

        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises SendTimeout: when it is not, in time.
        :raises LinkClosed: when the sender was closed before all of them had an outcome.
        :raises ConnectionClosed: when the connection was closed before; ``ConnectionGaveUp`` when it gave up.
        """
        self._thread.call(flush(self._core, limit(timeout, self._call_timeout)))

    def close(self) -> None:
        """Close the link, without waiting for anything.  Sends that wait fail with ``LinkClosed``."""
        close_link(self._thread, self._core.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._core.error is None:
                self.flush()
        finally:
            self.close()

    def __repr__(self) -> str:
        return describe_sender("haclient", self._core, self.unsettled)

    def _post(
        self,
        message: proton.Message | SendableBody,
        seconds: float | None,
        duplicate_id: str | bytes | None,
        *,
        durable: bool | None,
        wait: bool = True,
    ) -> tuple[BlockingSendFuture, bytes]:
        self._thread.check()
        future, core = BlockingSendFuture(), self._core
        future.core, future.thread, future.sender = core, self._thread, self
        try:
            if wait and self.unsettled >= core.ledger.window:
                self._wait_window(seconds, duplicate_id)
            with self._lock:
                if not wait:
                    self._check_window()
                data = self._encode(message, duplicate_id, durable=durable)
                self._posted += 1
                self._thread.post_checked(self._submit, data, future)
        except BaseException:
            # What cannot be encoded, and an interrupt: the call may have been given a place in the window.
            if wait:
                self._window_unused()
            raise
        return future, data

    def _check_window(self) -> None:
        core = self._core
        if core.error is None and self.unsettled >= core.ledger.window:
            raise full_window(core)

    def _submit(self, data: bytes, future: BlockingSendFuture | Batch) -> None:
        self._submitted += 1
        future.submit(data)

    def _take(
        self, batch: Batch, messages: Iterable[Any], deadline: float | None, *, durable: bool | None
    ) -> None:
        """Send messages as the window allows, until the iterable, the sender or the time ends."""
        core, thread, window, taken = self._core, self._thread, self._core.ledger.window, 0
        iterator = iter(messages)
        try:
            while batch.ended is None and core.error is None:
                if self.unsettled >= window:
                    if not self._wait_for_place(batch, taken, deadline):
                        return
                    continue
                message: Any = next(iterator, END)
                if message is END:
                    batch.complete = True
                    return
                with self._lock, contextlib.suppress(ConnectionClosed):  # the batch is told so
                    taken += 1
                    try:
                        data = self._encode(message, None, durable=durable)
                    except UnencodableValue as error:
                        thread.post_checked(batch.refuse, error)
                    else:
                        self._posted += 1
                        thread.post_checked(self._submit, data, batch)
        finally:
            # Another call may have the place in the window that this one has waited for, and does not need.
            self._window_unused()

    def _wait_for_place(self, batch: Batch, taken: int, deadline: float | None) -> bool:
        """Wait until the window allows another message; ``False`` when sender or time end before."""
        # To be woken for every single message would cost more than sending it.
        most = self._core.ledger.window // 2
        if taken - batch.settled > most:
            return self._wait_settled(batch, most, deadline)
        try:
            self._thread.call_within(_remaining(deadline), self._core.wait_window)
        except HaclientError as error:
            batch.ended = error
            return False
        except TimeoutError:
            return False
        return True

    def _wait_settled(self, batch: Batch, most: int, deadline: float | None) -> bool:
        """Wait until no more messages than that are unsettled; ``False`` when the time ends before."""
        settled = threading.Event()
        with contextlib.suppress(ConnectionClosed):  # then all messages have failed
            self._thread.post(batch.when_unsettled, most, settled.set)
        return settled.wait(_remaining(deadline))

    def _window_unused(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._thread.post(self._core.window_unused)

    def _wait_window(self, seconds: float | None, duplicate_id: str | bytes | None) -> None:
        try:
            self._thread.call_within(seconds, self._core.wait_window)
        except DeadlineExceeded:
            raise
        except TimeoutError:
            raise window_full(self._core, seconds, duplicate_id) from None


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - monotonic(), 0)


async def _on_loop(function: Callable[..., object], *arguments: Any) -> None:
    function(*arguments)
