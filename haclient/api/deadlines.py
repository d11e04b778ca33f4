"""One deadline per call: its own ``timeout``, or the option's."""

from __future__ import annotations

import asyncio
import math
from typing import Protocol, TypeVar

from haclient.core.connection import ConnectionCore, State
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.error_catalog.arguments import check_timeout
from haclient.error_catalog.base import quoted
from haclient.errors import (
    ConnectionGaveUp,
    DeadlineExceeded,
    HaclientError,
    LinkTimeout,
    SendTimeout,
    WindowFull,
    another,
)

E = TypeVar("E", bound=HaclientError)

_NO_PRIMARY = "the connection has no primary"
_NO_CREDIT = "the primary gives no credit: is the queue full?"
_BLOCKED = "the primary takes nothing: its session window is closed, as in a memory or disk alarm"


def limit(timeout: float | None, default: float | None = None) -> float | None:
    """Return the seconds that a call may take; ``None`` for no limit.

    :param timeout: the call's argument: ``None`` if not given, ``math.inf`` for no limit.
    :param default: the value of the option.
    :raises TypeError, ValueError: if ``timeout`` is no valid time.
    """
    if timeout is None:
        return None if default == math.inf else default
    check_timeout(timeout)
    return None if timeout == math.inf else timeout


async def wait_opened(
    connection: ConnectionCore, core: SenderCore | ReceiverCore, seconds: float | None
) -> None:
    """Wait until a link is attached; close it at the timeout, or if the wait is cancelled.

    :raises LinkTimeout: if it takes longer.
    :raises LinkRefused: if the primary refuses the link, finally or until the timeout.
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
        connected = connection.state is State.CONNECTED
        because = "" if connected else f": {_NO_PRIMARY}"
        error = LinkTimeout(
            f"the link to {quoted(core.address)} was not attached within {seconds} s{because}"
        )
        raise error if connected else _with_code(error, ConnectionGaveUp.code)
    if isinstance(refused := core.opened.exception(), HaclientError):
        raise another(refused)


def not_settled(
    core: SenderCore, seconds: float | None, *, delivered: bool | None, duplicate_id: str | bytes | None
) -> SendTimeout:
    """Return the error of a send whose message was not settled in time."""
    text, code = f"the primary did not settle the message within {seconds} s", SendTimeout.code
    if delivered is False and core.blocked:
        text, code = f"{_BLOCKED}. The message was not sent within {seconds} s", "blocked"
    elif delivered is False and core.lacks_credit:
        text, code = f"{_NO_CREDIT} The message was not sent within {seconds} s", "no-credit"
    elif not core.connected:
        obstacle, code = _not_connected_reason(core)
        text = f"{obstacle}: the message was not settled within {seconds} s"
    return _with_code(SendTimeout(text, delivered=delivered, duplicate_id=duplicate_id), code)


def window_full(core: SenderCore, seconds: float | None, duplicate_id: str | bytes | None) -> SendTimeout:
    """Return the error of a send that waited too long for the window."""
    text, code = f"the window of {core.ledger.window} messages stayed full for {seconds} s", SendTimeout.code
    if (reason := _blocking_reason(core)) is not None:
        text, code = f"{text}: {reason[0]}", reason[1]
    elif not core.connected:
        obstacle, code = _not_connected_reason(core)
        text = f"{text}: {obstacle}"
    return _with_code(SendTimeout(text, delivered=False, duplicate_id=duplicate_id), code)


def full_window(core: SenderCore) -> WindowFull:
    """Return the error of a call that does not wait for the window."""
    text = f"the window of {core.ledger.window} messages is full"
    if (reason := _blocking_reason(core)) is not None:
        text = f"{text}: {reason[0]}"
    elif not core.connected:
        text = f"{text}: {_not_connected_reason(core)[0]}"
    return WindowFull(text, core.ledger.window)


class Flushing(Protocol):
    """Interface of one sender, or of all senders of a connection or a factory."""

    @property
    def unsettled(self) -> int:
        """Number of messages without an outcome."""

    @property
    def starved(self) -> bool:
        """Return whether messages wait because the primary gives no credit."""

    @property
    def blocked(self) -> bool:
        """Return whether the primary's session window is closed."""

    async def flush(self) -> None:
        """Wait until all messages sent before are settled."""


async def flush(senders: Flushing, seconds: float | None) -> None:
    """Wait until all messages sent before are settled.

    :raises SendTimeout: if it takes longer.
    """
    try:
        async with asyncio.timeout(seconds):
            await senders.flush()
    except DeadlineExceeded:
        raise
    except TimeoutError:
        text, code = f"{senders.unsettled} messages are not settled after {seconds} s", SendTimeout.code
        if (reason := _blocking_reason(senders)) is not None:
            text, code = f"{text}: {reason[0]}", reason[1]
        raise _with_code(SendTimeout(text, delivered=None), code) from None


def _blocking_reason(senders: Flushing) -> tuple[str, str] | None:
    """Return why a connected primary blocks sends, and the error code; a closed window comes first."""
    if senders.blocked:
        return _BLOCKED, "blocked"
    return (_NO_CREDIT, "no-credit") if senders.starved else None


def _not_connected_reason(core: SenderCore) -> tuple[str, str]:
    """Return why no message can be sent now, and the error code."""
    if core.refusal is None:
        return _NO_PRIMARY, ConnectionGaveUp.code
    return f"for now {core.refusal}", core.refusal.code


def _with_code(error: E, code: str) -> E:
    error.code = code
    return error
