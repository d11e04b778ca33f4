"""What both APIs return stays in its process."""

from __future__ import annotations

from typing import NoReturn


def not_picklable(self: object) -> NoReturn:
    """As ``__reduce__``: say what to do instead, where ``multiprocessing`` passes an object on."""
    raise TypeError(
        f"a {type(self).__name__} cannot be pickled: give the other process the URL, and connect there"
    )
