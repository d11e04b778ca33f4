"""Selectors: an informative error, or a condition that never holds together with its negation."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock

import proton

from broker_stub.queueing.selectors import Selector, SelectorError, conditions
from tests.fuzz.target import Defect, Target

_VALUES = {"a": 1, "b": 2.5, "c": "red", "d": True, "e": "", "f": -(2**62)}


class Selectors(Target):
    name = "selector"
    words = (
        *(b" AND ", b" OR ", b"NOT ", b" BETWEEN ", b" IN (", b" LIKE '", b" ESCAPE '", b" IS NULL"),
        *(b"TRUE", b"'%_%'", b"''", b'"a"', b"<>", b">=", b"0x1F", b"1e308", b"JMSPriority", b"amqp.subject"),
    )

    def __init__(self) -> None:
        self._message = proton.Message(properties=_VALUES, subject="red", id=7).encode()

    def run(self, data: bytes) -> None:
        text = data.decode(errors="replace")
        try:
            selector = Selector(text)
        except SelectorError as error:
            if not str(error):
                raise Defect("an error that says nothing") from error
            return
        holds = selector.selects(self._message)
        if selector.holds(lambda _name: None) not in (True, False):
            raise Defect("neither true nor false")
        try:
            opposite = Selector(f"NOT ({text})")
        except SelectorError:
            return  # too long, or too deep
        if holds and opposite.selects(self._message):
            raise Defect("true, and so is its opposite")

    def planted(self) -> AbstractContextManager[object]:
        """A division by zero raises an error."""

        def divide(one: float, other: float) -> float:
            if other == 0:
                raise Defect("divided by zero")
            return one / other

        return mock.patch.dict(conditions.ARITHMETIC, {"/": divide})


TARGET = Selectors
