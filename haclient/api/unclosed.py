"""Warns of connections and factories that were collected without being closed.

The collector runs anywhere, also in the middle of a call of this package: nothing here takes a lock, waits
or raises.  At the end of the process, and in a forked one, nothing is said.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

# Bound as defaults: at the end of the process the globals of a module are gone before its objects are.


def is_ours(
    pid: int,
    *,
    getpid: Callable[[], int] = os.getpid,
    is_finalizing: Callable[[], bool] = sys.is_finalizing,
) -> bool:
    """Whether what a process made can still be released here."""
    return not is_finalizing() and getpid() == pid


def warn_unclosed(found: object) -> None:
    """Give the ``ResourceWarning``; with ``tracemalloc`` it shows where the object was made."""
    text = f"{found!r} was never closed: call close(), or use it in a 'with' block"
    warnings.warn(text, ResourceWarning, stacklevel=3, source=found)
