"""Check that objects of the asyncio API are used on their own event loop.

Neither proton's engine nor a future may be touched from another thread.  After the end of ``asyncio.run``, or
in a forked process, no code reads the sockets any more.  Without the check such a call would wait for ever,
or corrupt the work of another thread.
"""

from __future__ import annotations

import asyncio

# Unlike ``get_running_loop`` it returns ``None`` without a loop, or in a forked process, and does not raise.
from asyncio import _get_running_loop as running_loop

from haclient.errors import WrongThread

__all__ = ["check_loop", "running_loop", "wrong_loop"]


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Check that the call is made on this event loop.

    :raises WrongThread: on another loop, on another thread, or in a forked process.
    """
    if running_loop() is not loop:
        raise wrong_loop()


def wrong_loop() -> WrongThread:
    """Return the error for a call on another event loop."""
    return WrongThread(
        "this belongs to another event loop: call it there (asyncio.run_coroutine_threadsafe), or connect"
        " anew on this one; the blocking API may be used by several threads"
    )
