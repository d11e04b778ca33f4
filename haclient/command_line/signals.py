"""Run coroutines that a signal cancels, so that their connections close.

Rules
-----
* SIGINT and SIGTERM cancel the work.  The next one ends the process at once.
* A signal that the process ignores from its start stays ignored.
* Signals are for the main thread: in another thread (a test runs a command there) only the work ends itself.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

from haclient.command_line import interrupts

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end.

    :raises click.exceptions.Exit: with the exit code of a signal that ended it.
    """

    async def unless_stopped() -> T:
        results: list[T] = []

        async def keep() -> None:
            results.append(await work)

        stopped = await until_stopped(keep())
        if not results:
            assert stopped is not None
            raise click.exceptions.Exit(interrupts.code_of(stopped))
        return results[0]

    return asyncio.run(unless_stopped())


async def until_stopped(work: Coroutine[Any, Any, None]) -> signal.Signals | None:
    """Run a coroutine to its end, or until SIGINT or SIGTERM cancels it.

    :returns: the signal, if one cancelled it.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    stopped: signal.Signals | None = None
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    if threading.current_thread() is not threading.main_thread():
        before = {}
    handled = [number for number, handler in before.items() if handler not in {signal.SIG_IGN, None}]

    def stop(number: signal.Signals) -> None:
        nonlocal stopped
        stopped = number
        for each in handled:
            loop.remove_signal_handler(each)
            signal.signal(each, interrupts.leave)
        task.cancel()

    for number in handled:
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if stopped is None:
            raise
    finally:
        if stopped is None:
            for number in handled:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])
    return stopped
