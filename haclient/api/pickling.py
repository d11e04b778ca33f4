"""Objects of both APIs cannot be pickled."""

from __future__ import annotations

from typing import NoReturn


def not_picklable(self: object) -> NoReturn:
    """As ``__reduce__``, raise an error with advice for programs that use ``multiprocessing``."""
    raise TypeError(
        f"a {type(self).__name__} cannot be pickled: give the other process the URL, and connect there"
    )
