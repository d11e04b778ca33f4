"""Senders of the blocking API; see ``haclient.blocking``."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from time import monotonic
from types import TracebackType
from typing import Self

import proton

from haclient.api.blocking_receiver import close_link
from haclient.api.deadlines import flush, limit, not_settled, window_full
from haclient.api.pickling import not_picklable
from haclient.api.send_futures import BlockingSendFuture
from haclient.cluster_url.options import Options
from haclient.core.message_encoder import MessageEncoder
from haclient.core.sender import SenderCore
from haclient.engine.codec import duplicate_id_of
from haclient.errors import ConnectionClosed, DeadlineExceeded
from haclient.loop_thread import LoopThread
from haclient.outcome import Outcome


class Sender:
    """Sends messages to one node, across failovers.

    As a context manager it flushes at the end of the block, and closes; after an exception or a cancellation
    it only closes.
    """

    __reduce__ = not_picklable

    def __init__(
        self, thread: LoopThread, core: SenderCore, encoder: MessageEncoder, options: Options
    ) -> None:
        self._thread = thread
        self._core = core
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
        message: proton.Message,
        *,
        timeout: float | None = None,
        durable: bool | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> Outcome:
        """Send and wait until the primary has settled it, across failovers.

        :param timeout: seconds; the URL's ``send_timeout`` by default, which is none, as ``math.inf`` is.
        :param durable: whether the message survives a failover of any broker; ``create_sender``'s by default.
        :param duplicate_id: that of an earlier send, which this one repeats (``SendTimeout`` has it): a
            broker with duplicate detection stores one message.  Made up when left out.
        :raises MessageNotAccepted: with the outcome, when the broker did not accept it.
        :raises SendTimeout: ``delivered`` says whether it may have arrived.
        :raises DeliveryUnknown: at most once only, when the connection was lost before the outcome.
        :raises ConnectionClosed, LinkClosed: when there is nothing to send on any more.
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
        message: proton.Message,
        *,
        timeout: float | None = None,
        durable: bool | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> Future[Outcome]:
        """Send without waiting for the outcome, which the returned future will hold.

        Waits only while the window is full.  The future raises what ``send`` would raise;
        cancelling it withdraws a message that has not been sent yet.

        :param timeout, durable, duplicate_id: as for ``send``.
        :raises SendTimeout: when the window stayed full.
        """
        seconds = self._timeout if timeout is None else limit(timeout)
        return self._post(message, seconds, duplicate_id, durable=durable)[0]

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything sent before is settled; what is sent meanwhile is not waited for.

        The outcome of each message is in its future, or was raised by its ``send``.

        :param timeout: seconds; the URL's ``call_timeout`` by default, ``math.inf`` for no limit.
        :raises SendTimeout: when it is not, in time.
        :raises ConnectionGaveUp, ConnectionClosed, LinkClosed: when the sender ended, with messages among it.
        """
        self._thread.call(flush(self._core, limit(timeout, self._call_timeout)))

    def close(self) -> None:
        """Close the link, without waiting for anything.  Sends that wait fail with ``LinkClosed``."""
        close_link(self._thread, self._core)

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

    def _post(
        self,
        message: proton.Message,
        seconds: float | None,
        duplicate_id: str | bytes | None,
        *,
        durable: bool | None,
    ) -> tuple[BlockingSendFuture, bytes]:
        self._thread.check()
        future = BlockingSendFuture()
        future.core, future.thread = self._core, self._thread
        try:
            if self.unsettled >= self._core.ledger.window:
                self._wait_window(seconds, duplicate_id)
            with self._lock:
                data = self._encode(message, duplicate_id, durable=durable)
                self._posted += 1
                self._thread.post(self._submit, data, future)
        except BaseException:
            # What cannot be encoded, and an interrupt: the call may have been given a place in the window.
            with contextlib.suppress(ConnectionClosed):
                self._thread.post(self._core.window_unused)
            raise
        return future, data

    def _submit(self, data: bytes, future: BlockingSendFuture) -> None:
        self._submitted += 1
        future.submit(data)

    def _wait_window(self, seconds: float | None, duplicate_id: str | bytes | None) -> None:
        try:
            self._thread.call_within(seconds, self._core.wait_window)
        except DeadlineExceeded:
            raise
        except TimeoutError:
            raise window_full(self._core, seconds, duplicate_id) from None
