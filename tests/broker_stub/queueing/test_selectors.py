"""Selectors: examples and truth tables of the JMS specification, SQLite as the reference, and hostile
ones.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Mapping

import proton
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker_stub.queueing.options import SELECTOR, QueueOptionError, QueueOptions
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.selectors import Selector, SelectorError
from broker_stub.queueing.selectors.parser import MAX_DEPTH, MAX_LENGTH
from broker_stub.queueing.selectors.pattern import MAX_COMPARED, MAX_WILDCARDS

RED = {"colour": "red", "weight": 2500, "ratio": 0.5, "insured": True, "phone": "12993", "_x$1": "a"}


def holds(text: str, values: Mapping[str, object] = RED) -> bool:
    return Selector(text).selects(proton.Message(properties=dict(values)).encode())


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'red'",
        "colour <> 'blue' AND weight > 2000",
        "weight BETWEEN 2500 AND 2500",
        "weight NOT BETWEEN 2501 AND 9000",
        "colour IN ('blue', 'red')",
        "colour not in ('blue')",
        "phone LIKE '12%3'",
        "phone LIKE '12__3'",
        "phone NOT LIKE '12_3'",
        "colour LIKE '%'",
        "insured",
        "NOT insured = FALSE",
        "insured <> FALSE",
        "weight * 2 + 1 = 5001",
        "weight / 1000 = 2",
        "-weight / 1000 = -2",
        "weight / 1000.0 = 2.5",
        "ratio = .5 and ratio = 5E-1 and ratio = 0.5d",
        "weight = 0x9C4 AND weight = 04704 AND weight = 2500L",
        "1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9 AND 10 - 4 - 3 = 3",
        "missing IS NULL AND colour IS NOT NULL",
        "colour = 'blue' OR colour = 'green' OR weight >= 2500",
        "colour = 'red' OR missing = 1",
        "_x$1 = 'a' AND \"_x$1\" = 'a'",
        "(colour) = ('red')",
        "'it''s' = 'it''s'",
        "   weight=2500   ",
        "+weight = - -2500",
    ],
)
def test_a_message_that_meets_the_condition_is_selected(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'RED'",
        "colour = 1",
        "weight <> 'heavy'",  # of another type: neither equal nor unequal
        "weight = '2500'",
        "insured = 1",
        "colour > 'a'",
        "missing = 1",
        "NOT missing = 1",
        "missing <> 1",
        "missing > 1 AND colour = 'red'",
        "missing LIKE '%'",
        "missing NOT IN ('a')",
        "missing NOT BETWEEN 1 AND 2",
        "colour IS NULL",
        "colour + 1 = 2",
        "weight / 0 = weight / 0",
        "1e308 * 1e308 > 0",
        "colour",
        "weight",
        "weight LIKE '2500'",
        "Colour = 'red'",
    ],
)
def test_a_message_for_which_it_is_false_or_unknown_is_not(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'the end' where a value"),
        ("colour =", "'the end' where a value"),
        ("colour = 'red", "quote is not closed"),
        ("colour = 'red' AND", "a value is expected"),
        ("colour == 'red'", "where a value"),
        ("colour IN ()", "a string"),
        ("colour IN (1)", "a string"),
        ("colour LIKE 5", "a string"),
        ("colour LIKE 'a' ESCAPE 'ab'", "one character"),
        ("colour LIKE 'a\\' ESCAPE '\\'", "ends in its escape"),
        ("colour NOT 'red'", "BETWEEN, IN or LIKE"),
        ("colour = 'red' colour", "AND, OR or the end"),
        ("weight BETWEEN 1", "AND is expected"),
        ("AND = 1", "a value"),
        ("08 = 8", "octal"),
        ("a = 1;", "begins no word"),
        ("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), "levels"),
        ("NOT " * 500 + "a", "levels"),
        ("-" * 500 + "1 = 1", "levels"),
        ("a" * (MAX_LENGTH + 1), "the most"),
    ],
)
def test_what_is_no_selector_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(SelectorError, match=why.replace("(", r"\(")):
        Selector(text)


def test_the_longest_chains_are_evaluated() -> None:
    assert holds("+".join("1" * 2000) + " = 2000")
    assert holds("*".join("1" * 2000) + " = 1")
    assert not holds(" OR ".join("a" * 800))
    assert not holds("*".join(["9" * 100] * 40) + " > 0")  # out of range


def test_a_pattern_with_many_wildcards_takes_no_longer() -> None:
    """Only stores have such selectors: new ones are limited to fewer wildcards."""
    pattern = "%" + "a%" * 1500 + "b"
    selector = Selector(f"text LIKE '{pattern}'", bounded=False)
    assert not selector.holds({"text": "a" * MAX_COMPARED}.get)


def test_a_pattern_has_a_bounded_number_of_wildcards() -> None:
    for wildcard in ("%a", "_"):
        assert holds(f"missing IS NULL OR phone LIKE '{wildcard * MAX_WILDCARDS}'")
        text = f"phone LIKE '{wildcard * (MAX_WILDCARDS + 1)}'"
        with pytest.raises(SelectorError, match="more than 100 wildcards"):
            Selector(text)
        assert not Selector(text, bounded=False).holds(RED.get)
    escaped = "!_" * (MAX_WILDCARDS + 1)
    assert holds(f"phone LIKE '{escaped}' ESCAPE '!'", {"phone": "_" * (MAX_WILDCARDS + 1)})


def test_a_queue_that_the_cluster_has_keeps_a_selector_that_a_new_one_must_not_have() -> None:
    """Otherwise the member would not start, or the backup would not follow."""
    given = {SELECTOR: f"phone LIKE '{'_' * (MAX_WILDCARDS + 1)}'"}
    with pytest.raises(QueueOptionError, match="more than 100 wildcards"):
        QueueOptions.of(given)
    options = QueueOptions.of(given, bounded=False)
    assert Queue("q", lambda: 0.0, options=options).options.plain() == given


def test_a_text_that_is_longer_than_a_selector_is_unknown_to_a_pattern() -> None:
    at_most, longer = {"text": "a" * MAX_COMPARED}, {"text": "a" * (MAX_COMPARED + 1)}
    for pattern in ("%", "a%", "%a_%"):
        assert holds(f"text LIKE '{pattern}'", at_most)
        assert not holds(f"text LIKE '{pattern}'", longer)
        assert not holds(f"text NOT LIKE '{pattern}'", longer)
    assert holds("text = text AND text IS NOT NULL", longer)


def test_header_and_properties_have_names() -> None:
    message = proton.Message(durable=True, priority=7, subject="order", correlation_id=uuid.UUID(int=5))
    message.id, message.group_id, message.group_sequence = 12, "g", 3
    message.creation_time = 1.5
    message.user_id = b"alice"
    data = message.encode()
    for text in (
        "JMSDeliveryMode = 'PERSISTENT' AND amqp.durable",
        "JMSPriority = 7 AND amqp.priority > 6",
        "JMSType = 'order' AND amqp.subject = 'order'",
        "JMSMessageID = 'ID:AMQP_ULONG:12'",
        "JMSCorrelationID = 'ID:AMQP_UUID:00000000-0000-0000-0000-000000000005'",
        "JMSXGroupID = 'g' AND JMSXGroupSeq = 3 AND JMSXUserID = 'alice'",
        "JMSTimestamp = 1500",
    ):
        assert Selector(text).selects(data), text
    assert Selector("JMSTimestamp IS NULL AND JMSType IS NULL").selects(proton.Message().encode())


def test_an_identifier_of_a_field_is_not_an_application_property() -> None:
    assert not holds("JMSPriority = 9", {"JMSPriority": 9})


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_not_selected_and_raise_nothing(data: bytes) -> None:
    assert not Selector("colour = 'red'").selects(data)


@given(st.text(max_size=80))
@example("a.b.c = 'x'")
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    try:
        selector = Selector(text)
    except SelectorError:
        return
    assert selector.holds(lambda _name: None) in (True, False)


# -- SQLite evaluates the same conditions, within the common part of both languages -------------

NAMES = ("a", "b", "c")
NUMBERS = st.integers(0, 9).map(str)
TEXTS = st.text("ab%_", max_size=3).map(lambda text: f"'{text}'")
TERMS = st.recursive(
    NUMBERS | st.sampled_from(NAMES),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=4,
)
LEAVES = st.one_of(
    st.tuples(TERMS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), TERMS).map(" ".join),
    st.tuples(TERMS, TERMS, TERMS).map(lambda t: f"{t[0]} BETWEEN {t[1]} AND {t[2]}"),
    st.tuples(TERMS, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
    st.tuples(st.sampled_from(["t", "u"]), st.sampled_from(["LIKE", "NOT LIKE"]), TEXTS).map(" ".join),
    st.tuples(st.sampled_from(["t", "u"]), TEXTS, TEXTS).map(lambda t: f"{t[0]} IN ({t[1]}, {t[2]})"),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda condition: f"NOT ({condition})"),
    ),
    max_leaves=6,
)


@given(
    condition=CONDITIONS,
    numbers=st.tuples(*[st.none() | st.integers(-9, 9)] * 3),
    texts=st.tuples(*[st.none() | st.text("ab%_", max_size=5)] * 2),
)
def test_sqlite_finds_the_same(
    condition: str, numbers: tuple[int | None, ...], texts: tuple[str | None, ...]
) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    row = database.execute(
        f"SELECT {condition} FROM (SELECT ? AS a, ? AS b, ? AS c, ? AS t, ? AS u)",  # noqa: S608
        (*numbers, *texts),
    ).fetchone()
    database.close()
    values = dict(zip((*NAMES, "t", "u"), (*numbers, *texts), strict=True))
    assert Selector(condition).holds(values.get) == bool(row[0])
