"""Exit codes instead of tracebacks on Ctrl-C, from the first module of a program to its last.

Rules
-----
* While modules load, nothing needs to be undone: Ctrl-C ends the process at once.  A ``KeyboardInterrupt``
  inside an import would print a traceback, or look like a missing module.
* While a command runs, the first Ctrl-C or SIGTERM raises ``KeyboardInterrupt``, so that the command can
  clean up.  The second one ends the process at once, even during the cleanup.
* After the command, Ctrl-C ends the process at once again: the interpreter would print a traceback at exit.
* A process that was started with SIGINT ignored (``nohup``, a job of a script) continues to ignore it.

This module imports little, because the process is unprotected until its handler is installed.

Source: the exit code of a process that a signal ended is 128 and the signal's number (POSIX shells).
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

_BASE = 128
INTERRUPTED = _BASE + signal.SIGINT
TERMINATED = _BASE + signal.SIGTERM

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_STDERR = 2
# Shows the cursor again (DECTCEM), because a progress bar hides it.
_SHOW_CURSOR = b"\x1b[?25h"


class Interrupt(KeyboardInterrupt):
    """A signal that ends the command.

    :param number: number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def code_of(number: int) -> int:
    """Return the exit code of a process that a signal ended."""
    return _BASE + number


def leave(number: int, _: FrameType | None = None) -> NoReturn:
    """End the process at once, as a signal handler."""
    if os.isatty(_STDERR):
        os.write(_STDERR, _SHOW_CURSOR)
    os._exit(code_of(number))


def interrupt(number: int, _: FrameType | None) -> NoReturn:
    """Raise ``KeyboardInterrupt``, and let the next signal end the process at once, as a signal handler."""
    handle(leave)
    raise Interrupt(number)


def handle(handler: Callable[[int, FrameType | None], object]) -> None:
    """Set the handler of each signal that the process does not ignore."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def start_program() -> None:
    """End the process at once on Ctrl-C from now on; a program calls this first."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    sys.unraisablehook = _leave_or_report


def _leave_or_report(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process if a signal arrived inside a destructor: Python would only print the exception."""
    if isinstance(unraisable.exc_value, Interrupt):
        leave(unraisable.exc_value.number)
    sys.__unraisablehook__(unraisable)


def command_starts() -> None:
    """Let the next signal raise ``KeyboardInterrupt``, if ``start_program`` was called."""
    if _in_program():
        handle(interrupt)


def command_ends() -> None:
    """Let a signal end the process at once again, if ``start_program`` was called."""
    if _in_program():
        handle(leave)


def _in_program() -> bool:
    return sys.unraisablehook is _leave_or_report
