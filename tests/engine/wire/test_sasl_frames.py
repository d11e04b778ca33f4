"""SASL frames as a server reads and writes them: proton checks the written frames."""

from __future__ import annotations

import contextlib
from typing import Any

import proton
from hypothesis import given
from hypothesis import strategies as st

from haclient.engine.wire import sasl_frames

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
    assert sasl_frames.read(encoded(0x41, fields)) == (0x41, wanted)


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
    st.binary(max_size=40), st.sampled_from([b"", b"\x00\x53\x41", b"\x00\x53\x41\xc0", b"\x00\x53\x41\xd0"])
)
def test_other_bytes_are_a_value_error(noise: bytes, start: bytes) -> None:
    body = start + noise
    with contextlib.suppress(ValueError):
        sasl_frames.read(noise)
    try:
        code, fields = sasl_frames.read((8 + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body)
    except ValueError:
        return
    assert code >= 0
    assert all(field is None or field in body for field in fields)
