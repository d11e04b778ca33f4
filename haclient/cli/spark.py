"""The Spark session of a command, stopped at the end, and on Ctrl-C without messages of py4j or the JVM.

Rules
-----
* The signal handler turns logging off, because py4j logs a traceback for each interrupted call.
* A JVM without Spark is killed at once, because it would print a traceback after its parent has ended.
* While Spark starts, the signal is deferred.  Spark would otherwise log errors about its missing parts.
* A running session is stopped, so that Spark removes its temporary files.  pyspark keeps a terminal's
  SIGINT from the JVM.
* A second signal kills the JVM, and ends the process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from haclient.command_line import interrupts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def stopped_after(start: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """Start a session and stop it at the end; stop silently if a signal ends the work."""
    session = _started(start)
    try:
        yield session
    except KeyboardInterrupt:
        _abandon(session)
        raise
    except BaseException:
        session.stop()
        raise
    session.stop()


def _started(start: Callable[[], SparkSession]) -> SparkSession:
    if all(signal.getsignal(number) is not interrupts.interrupt for number in interrupts.SIGNALS):
        return start()  # the program's signal handlers are not installed
    pending_signals: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        interrupts.handle(leave)
        pending_signals.append(number)
        logging.disable()
        if not _has_jvm():
            _kill_children()
            raise interrupts.Interrupt(number)

    interrupts.handle(end)
    try:
        session = start()
    except Exception:
        if not pending_signals:
            raise
        _kill_children()  # a SIGTERM to the process group has ended the JVM, so Spark failed to start
        raise interrupts.Interrupt(pending_signals[0]) from None
    interrupts.handle(_interrupt)
    if pending_signals:
        interrupts.handle(leave)
        _abandon(session)
        raise interrupts.Interrupt(pending_signals[0])
    return session


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    interrupts.handle(leave)
    logging.disable()
    raise interrupts.Interrupt(number)


def leave(number: int, _: FrameType | None) -> NoReturn:
    """Kill the JVM and end the process at once, as a signal handler."""
    try:
        _kill_children()
    finally:
        interrupts.leave(number)


def _has_jvm() -> bool:
    """Return True if pyspark has a connection to a JVM."""
    module = sys.modules.get("pyspark.core.context")
    return module is not None and module.SparkContext._gateway is not None  # noqa: SLF001 - nothing else says it


def _kill_children() -> None:
    """Kill the children of this process (Linux)."""
    for thread in Path("/proc/self/task").iterdir():
        children = []
        with contextlib.suppress(OSError):  # the thread has ended
            children = [int(child) for child in (thread / "children").read_text().split()]
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _abandon(session: SparkSession) -> None:
    """Stop a session during a job, and discard the job's messages."""
    warnings.simplefilter("ignore")  # a SIGTERM to the process group has ended the JVM first
    with contextlib.suppress(Exception):
        session.sparkContext.setLogLevel("OFF")
    with contextlib.suppress(Exception):
        session.stop()
