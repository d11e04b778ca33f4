"""The grammar of selectors: Jakarta Messaging 3.1, section 3.8.1.1."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NoReturn

from broker_stub.queueing.selectors.conditions import (
    ARITHMETIC,
    COMPARISONS,
    Expression,
    all_of,
    any_of,
    calculated,
    compared,
    constant,
    is_present,
    like,
    named,
    negated,
    one_of,
)
from broker_stub.queueing.selectors.pattern import MAX_WILDCARDS, wildcards
from broker_stub.queueing.selectors.words import SelectorError, Word, fail, words_of

MAX_LENGTH = 4096
"""The most characters of a selector."""
MAX_DEPTH = 50
"""The most levels of nested brackets, signs and NOTs."""


class Parser:
    """A recursive-descent parser, with one method for each level of precedence.

    :param bounded: refuse patterns with too many wildcards; False for a selector from the store.
    """

    def __init__(self, text: str, *, bounded: bool) -> None:
        self._bounded = bounded
        if len(text) > MAX_LENGTH:
            raise SelectorError(f"no selector: {len(text):,} characters, and {MAX_LENGTH:,} is the most")
        self._words = words_of(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Expression:
        """Parse the condition."""
        condition = self._disjunction()
        if self._next.kind != "end":
            self._unexpected("AND, OR or the end")
        return condition

    @property
    def _next(self) -> Word:
        return self._words[self._at]

    def _take(self, kind: str, *texts: str) -> Word | None:
        word = self._words[self._at]
        if word.kind != kind or (texts and word.text not in texts):
            return None
        self._at += 1
        return word

    def _need(self, kind: str, text: str) -> None:
        if self._take(kind, text) is None:
            self._unexpected(text)

    def _unexpected(self, wanted: str) -> NoReturn:
        fail(f"{self._next.text!r} where {wanted} is expected", self._next.position)

    def _deeper(self, parse: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            fail(f"more than {MAX_DEPTH} levels", self._next.position)
        try:
            return parse()
        finally:
            self._depth -= 1

    def _disjunction(self) -> Expression:
        terms = [self._conjunction()]
        while self._take("keyword", "OR"):
            terms.append(self._conjunction())
        return terms[0] if len(terms) == 1 else any_of(terms)

    def _conjunction(self) -> Expression:
        terms = [self._negation()]
        while self._take("keyword", "AND"):
            terms.append(self._negation())
        return terms[0] if len(terms) == 1 else all_of(terms)

    def _negation(self) -> Expression:
        if self._take("keyword", "NOT"):
            return negated(self._deeper(self._negation))
        return self._comparison()

    def _comparison(self) -> Expression:
        left = self._sum()
        symbol = self._take("symbol", *COMPARISONS)
        if symbol is not None:
            return compared(COMPARISONS[symbol.text], left, self._sum())
        if self._take("keyword", "IS"):
            present = self._take("keyword", "NOT")
            self._need("keyword", "NULL")
            return is_present(left) if present else negated(is_present(left))
        inverted = self._take("keyword", "NOT")
        if self._take("keyword", "BETWEEN"):
            low = self._sum()
            self._need("keyword", "AND")
            at_least = compared(COMPARISONS[">="], left, low)
            condition = all_of([at_least, compared(COMPARISONS["<="], left, self._sum())])
        elif self._take("keyword", "IN"):
            condition = one_of(left, self._strings())
        elif self._take("keyword", "LIKE"):
            condition = like(left, *self._pattern())
        elif inverted:
            self._unexpected("BETWEEN, IN or LIKE")
        else:
            return left
        return negated(condition) if inverted else condition

    def _strings(self) -> frozenset[str]:
        self._need("symbol", "(")
        strings = [self._string()]
        while self._take("symbol", ","):
            strings.append(self._string())
        self._need("symbol", ")")
        return frozenset(strings)

    def _string(self) -> str:
        word = self._take("string")
        if word is None:
            self._unexpected("a string")
        return word.text.replace("''", "'")

    def _pattern(self) -> tuple[str, str | None]:
        pattern, escape = self._string(), None
        if self._take("keyword", "ESCAPE"):
            escape = self._string()
            if len(escape) != 1:
                fail("an escape is one character", self._next.position)
        if self._bounded and wildcards(pattern, escape) > MAX_WILDCARDS:
            fail(f"more than {MAX_WILDCARDS} wildcards in a pattern", self._next.position)
        return pattern, escape

    def _sum(self) -> Expression:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Expression:
        return self._chain(self._signed, "*", "/")

    def _chain(self, parse: Callable[[], Expression], *symbols: str) -> Expression:
        first, steps = parse(), []
        while symbol := self._take("symbol", *symbols):
            steps.append((ARITHMETIC[symbol.text], parse()))
        return calculated(first, steps) if steps else first

    def _signed(self) -> Expression:
        if self._take("symbol", "-"):
            return calculated(constant(0), [(operator.sub, self._deeper(self._signed))])
        if self._take("symbol", "+"):
            return calculated(constant(0), [(operator.add, self._deeper(self._signed))])
        return self._primary()

    def _primary(self) -> Expression:
        if self._take("symbol", "("):
            inner = self._deeper(self._disjunction)
            self._need("symbol", ")")
            return inner
        if word := self._take("keyword", "TRUE", "FALSE"):
            return constant(word.text == "TRUE")
        if word := self._take("number"):
            return constant(_number(word))
        if self._next.kind == "string":
            return constant(self._string())
        if word := self._take("quoted"):
            return named(word.text.replace('""', '"'))
        if word := self._take("name"):
            return named(word.text)
        return self._unexpected("a value")


def _number(word: Word) -> int | float:
    text = word.text
    if text[:2].lower() == "0x":
        return int(text.rstrip("lL"), 16)
    if text.rstrip("lL").isdecimal():
        digits = text.rstrip("lL")
        # As in Java, a leading zero means octal.
        if digits[0] == "0" and len(digits) > 1:
            try:
                return int(digits, 8)
            except ValueError:
                fail(f"{text!r} is no octal number", word.position)
        return int(digits)
    return float(text.rstrip("fFdD"))
