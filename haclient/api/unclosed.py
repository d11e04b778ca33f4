"""Warnings about connections and factories that were garbage-collected without being closed.

The collector may run at any point, even in the middle of a call of this package: no code here takes a lock,
waits or raises.  At the end of the process, and in a forked one, there is no warning.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

# Bound as defaults: at the end of the process a module's globals are gone before its objects.


def is_ours(
    pid: int,
    *,
    getpid: Callable[[], int] = os.getpid,
    is_finalizing: Callable[[], bool] = sys.is_finalizing,
) -> bool:
    """Return whether objects made by process ``pid`` can still be released here."""
    return not is_finalizing() and getpid() == pid


def warn_unclosed(found: object) -> None:
    """Issue a ``ResourceWarning``; with ``tracemalloc`` it shows where the object was made."""
    text = f"{found!r} was never closed: call close(), or use it in a 'with' block"
    warnings.warn(text, ResourceWarning, stacklevel=3, source=found)
