"""The expressions of a selector, as functions of a message's identifiers.

Each returns a value.  A condition returns ``True``, ``False``, or ``None`` for unknown.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from broker_stub.queueing.selectors.pattern import MAX_COMPARED, pattern_matcher

Value = str | int | float | bool | None
Lookup = Callable[[str], Value]
Expression = Callable[[Lookup], Value]
Calculate = Callable[[Any, Any], Any]


def constant(value: Value) -> Expression:
    """A constant."""
    return lambda _lookup: value


def named(name: str) -> Expression:
    """The value of an identifier."""
    return lambda lookup: lookup(name)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def any_of(terms: list[Expression]) -> Expression:
    """``OR``: true if a term is true, else unknown if a term is unknown."""
    return _decided(terms, by=True)


def all_of(terms: list[Expression]) -> Expression:
    """``AND``: false if a term is false, else unknown if a term is unknown."""
    return _decided(terms, by=False)


def _decided(terms: list[Expression], *, by: bool) -> Expression:
    def decided(lookup: Lookup) -> Value:
        found: Value = not by
        for term in terms:
            value = term(lookup)
            if value is by:
                return by
            if value is not (not by):
                found = None
        return found

    return decided


def negated(term: Expression) -> Expression:
    """``NOT``."""

    def inverse(lookup: Lookup) -> Value:
        value = term(lookup)
        return not value if isinstance(value, bool) else None

    return inverse


def is_present(term: Expression) -> Expression:
    """``IS NOT NULL``."""
    return lambda lookup: term(lookup) is not None


def compared(compare: Callable[[Any, Any], bool], left: Expression, right: Expression) -> Expression:
    """A comparison."""
    ordered = compare not in (operator.eq, operator.ne)

    def holds(lookup: Lookup) -> Value:
        one, other = left(lookup), right(lookup)
        if one is None or other is None:
            return None
        if _is_number(one) and _is_number(other):
            return compare(one, other)
        return not ordered and type(one) is type(other) and compare(one, other)

    return holds


def calculated(first: Expression, steps: list[tuple[Calculate, Expression]]) -> Expression:
    """Arithmetic from left to right.

    The steps are a list, because long chains of nested calls would exceed Python's recursion limit.
    """

    def value(lookup: Lookup) -> Value:
        found = first(lookup)
        for calculate, term in steps:
            found = _calculate(calculate, found, term(lookup))
        return found

    return value


def _calculate(calculate: Calculate, one: Value, other: Value) -> Value:
    if not (_is_number(one) and _is_number(other)):
        return None
    try:
        value: int | float = calculate(one, other)
    except (ZeroDivisionError, OverflowError):
        return None
    return value if -_LARGEST <= value <= _LARGEST else None


def _divide(one: float, other: float) -> int | float:
    """Divide as Java does: integers without a remainder."""
    if isinstance(one, int) and isinstance(other, int):
        quotient = abs(one) // abs(other)
        return quotient if (one < 0) == (other < 0) else -quotient
    return one / other


def one_of(term: Expression, strings: frozenset[str]) -> Expression:
    """``IN``."""

    def contained(lookup: Lookup) -> Value:
        value = term(lookup)
        return None if value is None else isinstance(value, str) and value in strings

    return contained


def like(term: Expression, pattern: str, escape: str | None) -> Expression:
    """``LIKE``: unknown for a text of more than ``MAX_COMPARED`` characters."""
    matches = pattern_matcher(pattern, escape)

    def matched(lookup: Lookup) -> Value:
        value = term(lookup)
        if value is None or (isinstance(value, str) and len(value) > MAX_COMPARED):
            return None
        return isinstance(value, str) and matches(value)

    return matched


_LARGEST = math.nextafter(math.inf, 0)
COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC: Final[dict[str, Calculate]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
}
