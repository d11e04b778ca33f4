"""Ctrl-C from the first module of a program to its last: an exit code and no traceback.

Rules
-----
* While modules load there is nothing to undo: Ctrl-C ends the process at once.  A ``KeyboardInterrupt``
  inside an import prints a traceback, or is taken for a missing module.
* While a command runs, the first Ctrl-C or SIGTERM raises ``KeyboardInterrupt``, so that the command can undo
  what it has begun.  The second one ends the process at once, whatever is being undone.
* After the command Ctrl-C ends the process at once again: the interpreter's own end prints a traceback.
* A process that was started with SIGINT ignored (``nohup``, a job of a script) goes on ignoring it.

This module imports little, for nothing protects the process before its handler is there.

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
# A progress bar hides it (DECTCEM).
_SHOW_CURSOR = b"\x1b[?25h"


class Interrupt(KeyboardInterrupt):
    """A signal that ends the command.

    :param number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def code_of(number: int) -> int:
    """The exit code of a process that a signal ended."""
    return _BASE + number


def leave(number: int, _: FrameType | None = None) -> NoReturn:
    """End the process at once; a handler of signals."""
    if os.isatty(_STDERR):
        os.write(_STDERR, _SHOW_CURSOR)
    os._exit(code_of(number))


def interrupt(number: int, _: FrameType | None) -> NoReturn:
    """Raise ``KeyboardInterrupt``, and let the next signal end the process at once; a handler of signals."""
    handle(leave)
    raise Interrupt(number)


def handle(handler: Callable[[int, FrameType | None], object]) -> None:
    """Set the handler of each signal that the process does not ignore."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def start_program() -> None:
    """End the process at once on Ctrl-C from now on; the first thing that a program does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    sys.unraisablehook = _leave_or_report


def _leave_or_report(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process if a signal came inside a destructor: Python prints the exception, and goes on."""
    if isinstance(unraisable.exc_value, Interrupt):
        leave(unraisable.exc_value.number)
    sys.__unraisablehook__(unraisable)


def command_starts() -> None:
    """Raise ``KeyboardInterrupt`` on the next signal, in a program."""
    if _in_program():
        handle(interrupt)


def command_ends() -> None:
    """End the process at once on a signal again, in a program."""
    if _in_program():
        handle(leave)


def _in_program() -> bool:
    return sys.unraisablehook is _leave_or_report
