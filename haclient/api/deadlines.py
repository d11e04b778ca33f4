"""One deadline a call: its own ``timeout``, or that of an option."""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from haclient.core.connection import ConnectionCore, State
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.errors import DeadlineExceeded, HaclientError, LinkTimeout, SendTimeout, another

_NOBODY = "the connection has no primary"


def limit(timeout: float | None, default: float | None = None) -> float | None:
    """The seconds that a call may take; ``None`` for no limit.

    :param timeout: that of the call: ``None`` if it names none, ``math.inf`` for no limit.
    :param default: that of the option.
    """
    seconds = default if timeout is None else timeout
    return None if seconds == math.inf else seconds


async def wait_opened(
    connection: ConnectionCore, core: SenderCore | ReceiverCore, seconds: float | None
) -> None:
    """Wait until a link is attached; close it if it is not in time, or the wait is cancelled.

    :raises LinkTimeout: when it takes longer.
    :raises LinkRefused: when the primary refuses it, for good or all that time.
    """
    try:
        if not core.opened.done():
            await asyncio.wait([core.opened], timeout=seconds)
    except asyncio.CancelledError:
        core.close()
        raise
    if not core.opened.done():
        core.close()
        if connection.state is State.CONNECTED and core.refusal is not None:
            raise another(core.refusal)
        because = "" if connection.state is State.CONNECTED else f": {_NOBODY}"
        raise LinkTimeout(f"the link to {core.address!r} was not attached within {seconds} s{because}")
    if isinstance(error := core.opened.exception(), HaclientError):
        raise another(error)


def not_settled(
    core: SenderCore, seconds: float | None, *, delivered: bool | None, duplicate_id: str | bytes | None
) -> SendTimeout:
    """The error of a send whose message was not settled in time."""
    failed = "the primary did not settle the message"
    if not core.connected:
        failed = f"{_obstacle(core)}: the message was not settled"
    return SendTimeout(f"{failed} within {seconds} s", delivered=delivered, duplicate_id=duplicate_id)


def window_full(core: SenderCore, seconds: float | None, duplicate_id: str | bytes | None) -> SendTimeout:
    """The error of a send that waited too long for the window."""
    because = "" if core.connected else f": {_obstacle(core)}"
    msg = f"the window of {core.ledger.window} messages stayed full for {seconds} s{because}"
    return SendTimeout(msg, delivered=False, duplicate_id=duplicate_id)


class Flushing(Protocol):
    """One sender, or all those of a connection or a factory."""

    @property
    def unsettled(self) -> int:
        """How many messages have no outcome yet."""

    async def flush(self) -> None:
        """Wait until everything sent before is settled."""


async def flush(senders: Flushing, seconds: float | None) -> None:
    """Wait until everything sent before is settled.

    :raises SendTimeout: when it takes longer.
    """
    try:
        async with asyncio.timeout(seconds):
            await senders.flush()
    except DeadlineExceeded:
        raise
    except TimeoutError:
        msg = f"{senders.unsettled} messages are not settled after {seconds} s"
        raise SendTimeout(msg, delivered=None) from None


def _obstacle(core: SenderCore) -> str:
    """Why nothing can be sent now."""
    return _NOBODY if core.refusal is None else f"for now {core.refusal}"
