"""Makes one call of the product fail, chosen by its number.

The interpreter reports the calls while some code runs: calls of Python's functions and of C's.  So
a new call in the code is counted without any list.  The failing call has no effect.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import broker_stub
import haclient

_CALLS = ("call", "c_call")
_PRODUCT = tuple(str(Path(each.__path__[0])) for each in (broker_stub, haclient))


class Fault(Exception):
    """The error that the failing call raises."""


class FaultyCalls:
    """Counts calls, and makes one of them raise.

    :param number: of the call that raises; ``None`` for none.
    :ivar names: of the calls so far.
    """

    def __init__(self, number: int | None) -> None:
        self.names: list[str] = []
        self._number = number

    @property
    def raised(self) -> bool:
        """Return whether there were that many calls."""
        return self._number is not None and len(self.names) > self._number

    @contextmanager
    def within(self, function: str) -> Iterator[None]:
        """Count the calls made while functions of this name run."""
        self._function, self._depth = function, 0
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code.co_name == self._function and event in ("call", "return"):
            self._depth += 1 if event == "call" else -1
        elif (
            self._depth > 0
            and event in _CALLS
            and code.co_filename.startswith(_PRODUCT)
            and not code.co_flags & inspect.CO_GENERATOR  # a discarded generator has no caller
        ):
            name = argument.__qualname__ if event.startswith("c_") else code.co_qualname
            self.names.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {name}")
            if len(self.names) - 1 == self._number:
                raise Fault(self.names[-1])
