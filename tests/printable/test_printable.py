"""A peer's text becomes a printable line in logs, exceptions and on terminals; elsewhere it is unchanged."""

from __future__ import annotations

import inspect
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.management_client import MemberRefusedError
from haclient.errors import HaclientError, LinkClosed, SendManyError
from haclient.printable.log import get_logger
from haclient.printable.text import printable, printable_json, printable_lines
from tests.cli.hostile import EVIL, assert_printable

ROOT = Path(__file__).parents[2]
ANY_TEXT = st.text(st.characters())  # surrogates too
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(ANY_TEXT)
def test_every_text_becomes_one_printable_line(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    shown.encode()  # a lone surrogate could not be encoded
    assert shown == text or not text.isprintable()


def test_escapes_are_those_of_python() -> None:
    assert printable("a\nb\x1b[31m\x9b\u202e\udc80\U000e0001é") == (
        "a\\nb\\x1b[31m\\x9b\\u202e\\udc80\\U000e0001é"
    )


@given(ANY_TEXT)
def test_lines_of_ours_stay_lines(text: str) -> None:
    assert len(printable_lines(text).split("\n")) == len(text.split("\n"))


@given(JSON)
def test_json_is_printable_and_of_the_same_value(value: Any) -> None:
    text = printable_json(value)
    assert text.isprintable()
    assert json.loads(text) == value


# -- log records ------------------------------------------------------------------------------


@pytest.fixture
def logger() -> logging.Logger:
    return get_logger("haclient.test_printable")


@given(text=ANY_TEXT)
def test_every_record_is_one_printable_line(text: str) -> None:
    logger, shown = get_logger("haclient.test_printable_property"), _Lines()
    logger.propagate = False
    logger.addHandler(shown)
    try:
        logger.warning("%s closed: %r, %d bytes", text, text, 1)
        logger.warning("closed: " + text.replace("%", ""))  # noqa: G003 - someone may
    finally:
        logger.removeHandler(shown)
    assert all(line.isprintable() for line in shown.lines)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def test_a_traceback_keeps_its_lines(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    try:
        int("\x1b")
    except ValueError as error:
        error.args = ("\x1b[31m",)
        logger.exception("it failed")
    assert_printable(caplog.text)
    assert caplog.text.count("\n") > 3
    assert "ValueError: \\x1b[31m" in caplog.text


def test_a_printable_record_keeps_its_arguments(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """Tools that group records by their format string still can."""
    logger.warning("lost %s", "amqp://a")
    (record,) = caplog.records
    assert (record.msg, record.args) == ("lost %s", ("amqp://a",))


def test_every_logger_of_the_packages_is_one_of_these() -> None:
    for path in [*ROOT.glob("haclient/**/*.py"), *ROOT.glob("broker_stub/**/*.py")]:
        if path != ROOT / "haclient" / "printable" / "log.py":
            for line in path.read_text().splitlines():
                assert "getLogger(" not in line or ".setLevel(" in line, f"{path}: use get_logger"


# -- exceptions -------------------------------------------------------------------------------


def kinds(base: type[HaclientError]) -> list[type[HaclientError]]:
    return [base, *(kind for each in base.__subclasses__() for kind in kinds(each))]


@pytest.mark.parametrize("kind", kinds(HaclientError), ids=lambda kind: kind.__name__)
def test_the_text_of_every_error_is_printable(kind: type[HaclientError]) -> None:
    error = kind(*[EVIL] * _required(kind))
    if not isinstance(error, SendManyError):  # its message has several lines
        assert str(error).isprintable()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", str(error))
    assert repr(error).isprintable()


def _required(kind: type[HaclientError]) -> int:
    if not inspect.isfunction(kind.__init__):
        return 1
    parameters = inspect.signature(kind).parameters.values()
    return sum(each.default is each.empty for each in parameters)


def test_what_a_program_reads_stays_as_the_peer_sent_it() -> None:
    assert LinkClosed("closed", EVIL).condition == EVIL


def test_the_text_of_an_error_of_management_is_printable() -> None:
    assert str(MemberRefusedError(EVIL)).isprintable()
