"""Objects of the asyncio API belong to one event loop; calls from elsewhere are refused.

Neither proton's engine nor a future may be touched from another thread, and after the end of
``asyncio.run``, or in a forked process, nothing reads the sockets any more.  Without the refusal such a call
would wait for ever, or break what another thread is doing.
"""

from __future__ import annotations

import asyncio

# ``None`` without a loop, and in a forked process: unlike ``get_running_loop`` it does not raise.
from asyncio import _get_running_loop as running_loop

from haclient.errors import WrongThread

__all__ = ["check_loop", "running_loop", "wrong_loop"]


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Refuse a call that is made elsewhere than on this event loop.

    :raises WrongThread: on another loop, on another thread, or in a forked process.
    """
    if running_loop() is not loop:
        raise wrong_loop()


def wrong_loop() -> WrongThread:
    """The error of such a call."""
    return WrongThread(
        "this belongs to another event loop: call it there (asyncio.run_coroutine_threadsafe), or connect"
        " anew on this one; the blocking API may be used by several threads"
    )
