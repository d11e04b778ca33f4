"""The futures that ``submit`` returns: cancelling one withdraws a message that is not on the wire.

A message on the wire stays in the ledger until the primary settles it or the connection is lost.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from typing import Any

from haclient.api.descriptions import describe_future
from haclient.api.light_future import LightFuture
from haclient.core.ledger import Entry
from haclient.core.sender import SenderCore
from haclient.errors import ConnectionClosed, HaclientError, WrongThread
from haclient.factory.loop_thread import LoopThread
from haclient.outcome import Outcome
from haclient.printable.log import get_logger

logger = get_logger("haclient")


class AsyncSendFuture(asyncio.Future[Outcome]):
    """A future of the asyncio API.  Belongs to the event loop of its sender.

    :ivar core: the core of its sender.
    :ivar sender: the sender, kept alive by this reference.
    :ivar entry: the entry in the ledger.  The caller sets all three: an ``__init__`` in Python would cost as
        much as the future itself, for each message.
    """

    __slots__ = ("core", "entry", "sender")

    core: SenderCore
    entry: Entry[Any]
    sender: object

    def set_exception(self, exception: type | BaseException, /) -> None:
        """Set the error of the message.

        asyncio does not warn if it is never read: a program may call ``flush`` only.
        """
        super().set_exception(exception)
        self.exception()
        logger.debug("a message that was submitted failed: %s", exception)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel, and withdraw the message if it is not on the wire."""
        cancelled = super().cancel(msg)
        if cancelled:
            self.core.withdraw_unsent(self.entry)
        return cancelled

    def __repr__(self) -> str:
        return describe_future("haclient.aio", self.core, self)


class BlockingSendFuture(LightFuture[Outcome]):
    """A future of the blocking API; any thread may cancel it.

    :ivar core: the core of its sender; the caller sets it, ``thread`` and ``sender``.
    :ivar sender: the sender, kept alive by this reference.
    :ivar entry: the entry in the ledger, once it has one.
    """

    core: SenderCore
    thread: LoopThread
    sender: object
    entry: Entry[Any] | None = None
    _cancelled = False

    def cancel(self) -> bool:
        """Cancel, and withdraw the message if it is not on the wire."""
        cancelled = super().cancel()
        if cancelled:
            self._cancelled = True
            # Without a loop, or in a forked process, no message is sent any more.
            with contextlib.suppress(ConnectionClosed, WrongThread):
                self.thread.post(self._withdraw_unsent)
        return cancelled

    def __repr__(self) -> str:
        return describe_future("haclient", self.core, self)

    def submit(self, data: bytes) -> None:
        """Put the message into the ledger (on the loop thread), unless it is cancelled already."""
        if self._cancelled:
            self.core.window_unused()
            return
        try:
            core = self.core
            self.entry = (core.submit if self.thread.busy else core.submit_last)(data, self)
        except HaclientError as error:
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # another thread cancelled it
                self.set_exception(error)

    async def withdraw(self) -> bool | None:
        """See ``SenderCore.withdraw``."""
        return self.core.withdraw(self.entry) if self.entry is not None else False

    def _withdraw_unsent(self) -> None:
        if self.entry is not None:
            self.core.withdraw_unsent(self.entry)
