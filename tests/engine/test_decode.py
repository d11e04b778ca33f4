"""A received message is decoded completely, or an error gives the reason."""

from __future__ import annotations

import tracemalloc

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import haclient
from haclient.engine import codec
from haclient.engine.amqp_values.decode import UndecodableMessage, read_sections
from haclient.engine.amqp_values.encode import MOST_VALUES, UnencodableValue
from haclient.engine.amqp_values.walk import MOST_LEVELS
from haclient.engine.codec import Encoder
from tests.engine.encoded_messages import MESSAGES, compound, list_of, map_of, section
from tests.engine.judge import NoJudgeError, content_of, plain

DATA, SEQUENCE, VALUE, PROPERTIES, APPLICATION_PROPERTIES = 0x75, 0x76, 0x77, 0x73, 0x74
ONE, NULL = b"\x54\x01", b"\x40"


def found_in(data: bytes) -> dict[str, object]:
    sections = read_sections(data)
    names = ("instructions", "annotations", "properties", "body")
    return {name: plain(getattr(sections, name)) for name in names}


@settings(max_examples=100)
@given(MESSAGES)
def test_every_message_is_read_as_a_second_decoder_reads_it(data: bytes) -> None:
    assert found_in(data) == content_of(data)


@settings(max_examples=150)
@given(MESSAGES, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3), st.integers(0, 5))
def test_a_damaged_message_is_read_as_the_second_decoder_reads_it_or_refused(
    data: bytes, damage: list[tuple[int, int]], lost: int
) -> None:
    damaged = bytearray(data)
    for position, value in damage:
        if damaged:
            damaged[position % len(damaged)] = value
    data = bytes(damaged[: len(damaged) - lost])
    try:
        found = found_in(data)
        message = codec.decode(data)
    except (UndecodableMessage, NoJudgeError):
        return
    for name in ("id", "subject", "address", "ttl", "durable", "priority", "content_type", "user_id"):
        getattr(message, name)
    try:
        expected = content_of(data)
    except NoJudgeError:
        return
    assert found == expected


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_any_other_bytes_are_refused_with_one_error(data: bytes) -> None:
    for start in (b"", b"\0\x53\x77", b"\0\x53\x76\xd0", b"\0\x53\x74\xd1"):
        try:
            codec.decode(start + data)
        except UndecodableMessage as error:
            assert str(error).startswith("cannot decode the ")  # noqa: PT017 - no other is raised


def test_data_sections_are_one_body() -> None:
    data = b"".join(section(DATA, b"\xa0\x05part%d" % index) for index in range(3))
    message = codec.decode(data)
    assert message.body == b"part0part1part2"
    assert message.inferred
    assert codec.decode_of_views(data)[0].body == b"part0part1part2"


def test_sequence_sections_are_a_list_of_lists_and_sent_on_as_they_came() -> None:
    data = b"".join(section(SEQUENCE, list_of([bytes((0x54, index))] * index)) for index in range(3))
    message = codec.decode(data)
    assert message.body == [[], [1], [2, 2]]
    assert type(message.body) is haclient.SequenceSections
    assert message.inferred
    again = codec.decode(Encoder().encode(message))
    assert (type(again.body), again.body) == (haclient.SequenceSections, message.body)


def test_one_sequence_section_is_a_list_also_of_lists() -> None:
    message = codec.decode(section(SEQUENCE, list_of([list_of([ONE]), list_of([])])))
    assert (type(message.body), message.body) == (list, [[1], []])


def test_a_message_with_several_sequences_can_be_made() -> None:
    message = haclient.Message(haclient.SequenceSections([[1, "a"], (2,)]), inferred=True)
    decoded = codec.decode(Encoder().encode(message))
    assert (type(decoded.body), decoded.body) == (haclient.SequenceSections, [[1, "a"], [2]])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([], "at least one"),
        ([[1], 2], r"^body\[1\]: an amqp-sequence section is a list"),
        ([[1], [object()]], r"^body\[1\]\[0\]: object is"),
        ([[None] * 40_000] * 2, r"^body: 80003 values are more than the 65535"),
    ],
)
def test_sequences_that_cannot_be_sent_are_refused(body: list[object], text: str) -> None:
    message = haclient.Message(haclient.SequenceSections(body), inferred=True)
    with pytest.raises(UnencodableValue, match=text):
        Encoder().encode(message)


def test_proton_s_own_encoding_refuses_several_sequences() -> None:
    message = codec.decode(section(SEQUENCE, list_of([])) * 2)
    with pytest.raises(UnencodableValue, match="one amqp-sequence section"):
        message.encode()


MANY = {
    "a list": lambda count: list_of([ONE] * count),
    "a map": lambda count: map_of([(b"\x70" + each.to_bytes(4), NULL) for each in range(count // 2)]),
    "an array": lambda count: compound(0xE0, 0xF0, [b"\x01"] * count, wide=True, head=b"\x54"),
    "an array of nulls": lambda count: b"\xf0\0\0\0\x05" + count.to_bytes(4) + NULL,
}


@pytest.mark.parametrize("kind", MANY)
def test_as_many_values_as_can_be_sent_are_read_and_one_more_is_refused(kind: str) -> None:
    most = MOST_VALUES - 1  # in addition to the list, map or array itself
    for code in (VALUE, *([SEQUENCE] if kind == "a list" else [])):
        body = codec.decode(section(code, MANY[kind](most))).body
        if not isinstance(body, proton.Array):
            assert len(body) == (most // 2 if kind == "a map" else most)  # type: ignore[arg-type]
        else:
            assert len(body.elements) == most
        with pytest.raises(UndecodableMessage, match=r"section: it has more than 65535 values"):
            codec.decode(section(code, MANY[kind](most + 2)))


def test_application_properties_that_proton_would_cut_are_refused() -> None:
    pairs = [(b"\xb1\0\0\0\x08%08d" % each, NULL) for each in range(33_000)]
    with pytest.raises(
        UndecodableMessage, match="the application-properties section: it has more than 65535"
    ):
        codec.decode(section(APPLICATION_PROPERTIES, map_of(pairs)) + section(VALUE, NULL))


def test_the_sections_of_a_body_have_one_bound_together() -> None:
    half = section(SEQUENCE, list_of([ONE] * (MOST_VALUES // 2 - 1)))
    assert len(codec.decode(half * 2).body) == 2  # type: ignore[arg-type]
    with pytest.raises(UndecodableMessage, match="more than 65535 values"):
        codec.decode(half * 2 + section(SEQUENCE, list_of([ONE])))
    parts = section(DATA, b"\xa0\x01x") * MOST_VALUES
    footer = b"\0\xa3\x0famqp:footer:map" + map_of([(ONE, NULL)])
    assert codec.decode(parts + footer).body == b"x" * MOST_VALUES
    with pytest.raises(UndecodableMessage, match="more than 65535 values"):
        codec.decode(parts + section(DATA, b"\xa0\0"))


def test_a_small_message_that_stands_for_a_large_one_takes_no_memory() -> None:
    """An array of 2^32 - 1 nulls, in many sections."""
    data = section(SEQUENCE, list_of([MANY["an array of nulls"](2**32 - 1)])) * 100
    tracemalloc.start()
    try:
        with pytest.raises(UndecodableMessage):
            codec.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_as_many_levels_as_can_be_sent_are_read_and_one_more_is_refused() -> None:
    value = NULL
    for _ in range(MOST_LEVELS):
        value = list_of([value])
    codec.decode(section(VALUE, value))
    for deeper in (list_of([value]), b"\0\xa3\1a" + value, map_of([(ONE, value)])):
        with pytest.raises(UndecodableMessage, match="more than 300 levels"):
            codec.decode(section(VALUE, deeper))


def test_the_deepest_of_all_messages_is_refused() -> None:
    """Each level is an array of one array, or a descriptor, of a byte or two."""
    with pytest.raises(UndecodableMessage, match="levels"):
        codec.decode(section(VALUE, b"\0" * 100_000 + NULL))
    value = NULL
    for _ in range(1_000):
        value = compound(0xE0, 0xF0, [value[1:]], wide=True, head=value[:1])
    with pytest.raises(UndecodableMessage, match="levels"):
        codec.decode(section(VALUE, value))


def test_a_value_that_is_described_twice_is_read_and_so_is_what_follows_it() -> None:
    twice = b"\0\xa3\1a\0\xa3\1b" + ONE
    body = codec.decode(section(VALUE, list_of([twice, b"\x54\x05"]))).body
    described = proton.Described(proton.symbol("a"), proton.Described(proton.symbol("b"), 1))
    assert body == [described, 5]


def test_sections_may_have_symbolic_descriptors() -> None:
    data = b"\0\xa3\x10amqp:data:binary\xa0\x01x"
    header = b"\0\xa3\x10amqp:header:list" + list_of([b"\x41"])
    message = codec.decode(header + data)
    assert (message.body, message.durable, message.inferred) == (b"x", True, True)


REFUSED = {
    "cannot decode the amqp-value section: a body has": section(VALUE, ONE) * 2,
    "cannot decode the amqp-sequence section: a body has": section(DATA, b"\xa0\0")
    + section(SEQUENCE, b"\x45"),
    "cannot decode the application-properties section: it is there twice": section(
        APPLICATION_PROPERTIES, map_of([])
    )
    * 2,
    "cannot decode the message: a section has a descriptor": section(0x79, ONE),
    "cannot decode the message: no section begins": section(VALUE, ONE) + b"\1",
    "cannot decode the data section: its value is no binary": section(DATA, b"\xa1\1x"),
    "cannot decode the amqp-sequence section: its value is no list": section(SEQUENCE, NULL),
    "cannot decode the header section: its value is no list": section(0x70, b"\xa1\1x"),
    "cannot decode the message-annotations section: its value is no map": section(0x72, list_of([])),
    "cannot decode the amqp-value section: two keys": section(
        VALUE, map_of([(b"\xa1\1a", ONE), (b"\xa3\1a", NULL)])
    ),
    "cannot decode the amqp-value section: the last key": section(VALUE, b"\xc1\x03\x01\x54\x01"),
    "cannot decode the amqp-value section: a list, a map or the like is the key": section(
        VALUE, map_of([(list_of([]), ONE)])
    ),
    "cannot decode the amqp-value section: a list, map or array does not end": section(
        VALUE, b"\xc0\x06\x01\x54\x01\x54\x02\x40"
    ),
    "cannot decode the amqp-value section: it ends within a value": section(
        VALUE, b"\xd0\0\0\0\x20\0\0\0\x03\x54\x01"
    ),
    "cannot decode the amqp-value section: AMQP has no constructor 0x30": section(
        VALUE, list_of([ONE, b"\x30"])
    ),
    "cannot decode the amqp-value section: 'utf-8'": section(VALUE, b"\xa1\1\xff"),
    "cannot decode the amqp-value section: chr": section(VALUE, b"\x73\0\x11\0\0"),
    "cannot decode the properties section: the text of subject has a NUL": section(
        PROPERTIES, list_of([NULL, NULL, NULL, b"\xa1\3a\0b"])
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_read_whole_is_refused_with_its_section_and_reason(text: str) -> None:
    with pytest.raises(UndecodableMessage) as caught:
        codec.decode(REFUSED[text])
    assert str(caught.value).startswith(text)


def test_a_caller_deep_in_calls_gets_the_same_error() -> None:
    value = NULL
    for _ in range(MOST_LEVELS):
        value = list_of([value])

    def deep(levels: int) -> object:
        return deep(levels - 1) if levels else codec.decode(section(VALUE, value))

    with pytest.raises(UndecodableMessage, match="Python cannot follow its levels here"):
        deep(700)
