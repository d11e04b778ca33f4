"""What the encoder writes itself is what proton would have written, byte for byte."""

from __future__ import annotations

import proton
from hypothesis import given, settings
from hypothesis import strategies as st

from haclient.engine.codec import Encoder

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=600)
MAPS = st.one_of(st.none(), st.just({}), st.just({"a": 1}))


@settings(max_examples=300)
@given(
    body=st.one_of(st.binary(max_size=600), TEXTS, st.none(), st.integers(0, 5)),
    duplicate_id=st.one_of(st.none(), TEXTS),
    subject=st.one_of(st.none(), TEXTS),
    user_id=st.one_of(st.none(), st.binary(max_size=300)),
    flags=st.tuples(st.booleans(), st.booleans()),
    properties=MAPS,
    annotations=MAPS,
    used_before=st.booleans(),
    durable=st.sampled_from([None, True, False]),
)
def test_the_fast_encoder_writes_the_bytes_of_the_general_one(
    *,
    body: object,
    duplicate_id: str | None,
    subject: str | None,
    user_id: bytes | None,
    flags: tuple[bool, bool],
    properties: dict[str, int] | None,
    annotations: dict[str, int] | None,
    used_before: bool,
    durable: bool | None,
) -> None:
    def make() -> proton.Message:
        message = proton.Message(body=body, durable=flags[0])
        message.inferred = flags[1]
        if subject is not None:
            message.subject = subject
        if user_id is not None:
            message.user_id = user_id
        if used_before:
            # proton keeps the sections of an earlier encoding inside the message.
            message.body, message.annotations = {"x": "y"}, {"q": 2}
            message.encode()
            message.body = body
        message.properties, message.annotations = properties, annotations
        return message

    encoder = Encoder()
    fast = encoder.encode(make(), duplicate_id, durable=durable)
    assert fast == encoder._encode_any(make(), duplicate_id, durable=durable)
