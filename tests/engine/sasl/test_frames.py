"""SASL frames of both sides: proton reads what we write, and writes what we read."""

from __future__ import annotations

import contextlib
from typing import Any

import proton
from hypothesis import given
from hypothesis import strategies as st

from haclient.engine.sasl import frames as sasl_frames

UNDESCRIBED: Any = proton.UNDESCRIBED
_NAMES = st.lists(st.from_regex(r"[A-Z0-9_-]{1,20}", fullmatch=True), min_size=1, max_size=20)
_FIELDS = st.lists(
    st.none()
    | st.binary(max_size=300)
    | st.text(max_size=80)
    | st.from_regex(r"[A-Z-]{0,300}", fullmatch=True).map(proton.symbol),
    max_size=3,
)


def decoded(frame: bytes) -> Any:
    """Decode the code and the fields with proton."""
    assert int.from_bytes(frame[:4]) == len(frame)
    data = proton.Data()
    data.decode(frame[8:])
    data.next()
    found = data.get_py_described()
    # Binary fields are views into the data, which is freed here.
    return found.descriptor, [bytes(each) if isinstance(each, memoryview) else each for each in found.value]


def encoded(code: int, fields: list[Any]) -> bytes:
    data = proton.Data()
    data.put_object(proton.Described(proton.ulong(code), fields))
    body = bytes(data.encode())
    return (8 + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body


@given(_FIELDS)
def test_what_a_client_sends_is_read(fields: list[Any]) -> None:
    wanted = [field.encode() if isinstance(field, str) else field for field in fields]
    assert sasl_frames.read(encoded(0x41, fields)[8:]) == (0x41, wanted)


@given(_NAMES)
def test_mechanisms_are_written_as_an_array_of_symbols(names: list[str]) -> None:
    code, [array] = decoded(sasl_frames.mechanisms(tuple(names)))
    assert (code, array.type, list(array.elements)) == (0x40, proton.Data.SYMBOL, names)


@given(st.binary(max_size=600))
def test_a_challenge_is_written_as_its_message(message: bytes) -> None:
    code, [field] = decoded(sasl_frames.challenge(message))
    assert (code, field) == (0x42, message)


def test_an_outcome_is_written_as_its_code() -> None:
    for outcome in range(5):
        assert decoded(sasl_frames.outcome(outcome)) == (0x44, [outcome])


@given(
    st.sampled_from(["PLAIN", "SCRAM-SHA-256"]),
    st.none() | st.binary(max_size=600),
    st.none() | st.text(max_size=300),
)
def test_the_first_frame_of_a_client_is_written_as_its_fields(
    name: str, message: bytes | None, host: str | None
) -> None:
    code, fields = decoded(sasl_frames.init(name, message, host))
    assert (code, fields) == (0x41, [proton.symbol(name), message, host])


@given(st.binary(max_size=600))
def test_a_response_is_written_as_its_message(message: bytes) -> None:
    assert decoded(sasl_frames.response(message)) == (0x43, [message])


@given(_NAMES, st.booleans())
def test_mechanisms_are_read_from_an_array_or_a_symbol(names: list[str], sole: bool) -> None:
    symbols = [proton.symbol(name) for name in names]
    array = proton.Array(UNDESCRIBED, proton.Data.SYMBOL, *symbols)
    frame = encoded(0x40, [symbols[0] if sole else array])
    code, [field] = sasl_frames.read_of_server(frame[8:])
    assert (code, list(sasl_frames.names(field))) == (0x40, names[:1] if sole else names)


def test_what_is_no_name_of_a_mechanism_is_left_out() -> None:
    listed = [proton.symbol(name) for name in ("PLAIN", "plain", "", "A" * 21, "GSSAPI")]
    array = proton.Array(UNDESCRIBED, proton.Data.SYMBOL, *listed)
    _, [field] = sasl_frames.read_of_server(encoded(0x40, [array])[8:])
    assert sasl_frames.names(field) == ("PLAIN", "GSSAPI")


@given(st.integers(0, 255), st.none() | st.binary(max_size=300))
def test_an_outcome_is_read_as_its_code_and_message(code: int, message: bytes | None) -> None:
    _, [first, second] = sasl_frames.read_of_server(encoded(0x44, [proton.ubyte(code), message])[8:])
    assert (sasl_frames.outcome_code(first), sasl_frames.message(second)) == (code, message or b"")


@given(st.binary(min_size=1, max_size=60))
def test_other_fields_of_a_server_are_a_value_error(field: bytes) -> None:
    for read in (sasl_frames.names, sasl_frames.message, sasl_frames.outcome_code):
        with contextlib.suppress(ValueError):
            read(field)


@given(
    st.binary(max_size=40), st.sampled_from([b"", b"\x00\x53\x41", b"\x00\x53\x41\xc0", b"\x00\x53\x41\xd0"])
)
def test_other_bytes_are_a_value_error(noise: bytes, start: bytes) -> None:
    body = start + noise
    with contextlib.suppress(ValueError):
        sasl_frames.read(noise)
    try:
        code, fields = sasl_frames.read(body)
    except ValueError:
        return
    assert code >= 0
    assert all(field is None or field in body for field in fields)
