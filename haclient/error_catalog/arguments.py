r"""Checks of arguments: each error names the argument and its actual type or problem.

Rules
-----
* A wrong type is a ``TypeError``, an impossible value a ``ValueError``; the argument's name comes first.
* An error shows the type, not the value, which may be a password or a megabyte.
* ``bool`` is no number, and a flag must be a ``bool``: ``durable="no"`` would be true.
* A text has no NUL: proton keeps names and addresses as C strings, which end at a NUL, so ``"a\0b"`` would
  be another queue.  It has no lone surrogate, which UTF-8 cannot encode.
"""

from __future__ import annotations

import math
import numbers
import operator
from typing import SupportsIndex, cast


def wrong_type(name: str, expected: str, value: object) -> TypeError:
    """Create the error for an argument of a wrong type."""
    return TypeError(f"{name}: expected {expected}, not {type(value).__name__}")


def check_text(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse a value that is no text, or that C or UTF-8 cannot hold.

    :raises TypeError, ValueError: names the argument and the problem.
    """
    if value is None and optional:
        return
    if not isinstance(value, str):
        raise wrong_type(name, "text or None" if optional else "text", value)
    if "\0" in value:
        raise ValueError(f"{name}: there is a NUL at [{value.index(chr(0))}], and C would end the text there")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: there is a lone surrogate at [{error.start}], which is no UTF-8") from None


def check_flag(name: str, value: object) -> None:
    """Refuse a value other than ``True`` and ``False``.

    :raises TypeError: names the argument.
    """
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)


def check_timeout(value: object) -> None:
    """Refuse a value that is no number of seconds.

    :raises TypeError, ValueError: names the problem.
    """
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise wrong_type("timeout", "seconds, or math.inf for no limit", value)
    if math.isnan(value):
        raise ValueError(f"timeout: {value} is no time to wait: seconds are expected, or math.inf")


def check_whole(name: str, value: object) -> int:
    """Return the argument as a whole number.

    :raises TypeError: for anything else.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong_type(name, "a whole number", value)
    return operator.index(cast("SupportsIndex", value))


def check_callable(name: str, value: object) -> None:
    """Refuse a value other than ``None`` or a function.

    :raises TypeError: names the argument.
    """
    if value is not None and not callable(value):
        raise wrong_type(name, "a function or None", value)


def check_type(name: str, value: object, *types: type) -> None:
    """Refuse a value that has none of these types.

    :raises TypeError: names the argument.
    """
    if not isinstance(value, types):
        expected = " or ".join("None" if each is type(None) else each.__name__ for each in types)
        raise wrong_type(name, expected, value)
