"""Messages and bodies as an application uses them, for mypy and pyright to check; see ``public_api.py``."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import assert_never, assert_type

import proton

from haclient import Body, Delivery, Message, SendableBody, Sender, SequenceSections, aio

Id = str | bytes | uuid.UUID | int | None
Text = str | None


def message_to_send(at: datetime, proton_message: proton.Message) -> Message:
    Message((1, 2))
    Message(body={"at": at, "pair": (1, [2.5, b"3"])})
    for body in (at, bytearray(b"x"), memoryview(b"x"), uuid.uuid4(), True, proton.Array(None, 1), None):
        Message(body=body)
    Message(SequenceSections([[1, "two"], (3,)]), inferred=True)
    Message(object())  # type: ignore[arg-type]
    Message("one", tll=60)  # type: ignore[call-arg]
    Message("one", ttl="60s")  # type: ignore[arg-type]
    message = Message(
        "one",
        inferred=True,
        durable=True,
        priority=9,
        ttl=0.5,
        id=7,
        user_id=b"me",
        address="orders",
        subject="order",
        reply_to="replies",
        correlation_id=uuid.uuid4(),
        content_type="text/plain",
        content_encoding="gzip",
        expiry_time=at.timestamp(),
        creation_time=0,
        group_id="group",
        group_sequence=3,
        reply_to_group_id="group",
        properties={"shop": 7, "express": True},
        annotations={"x-opt-delay": 5, proton.symbol("x-opt-other"): 1},
        instructions={proton.ulong(7): None},
        first_acquirer=False,
        delivery_count=0,
    )
    shop: dict[str, int] = {"shop": 7}
    message.properties = shop
    message.properties = None
    message.annotations = {"x-opt-delay": 5}
    message.body = (1, at)
    message.ttl = 60
    message.body = object()  # type: ignore[assignment]
    message.ttl = "60s"  # type: ignore[assignment]
    if isinstance(proton_message, Message):
        return proton_message
    return message


def proton_takes_what_haclient_returns(delivery: Delivery) -> proton.Message:
    return delivery.message


async def haclient_takes_what_proton_makes(sender: Sender, other: aio.Sender) -> None:
    message = proton.Message(body="one", durable=True)
    sender.send(message)
    sender.submit(message)
    sender.submit_nowait(message)
    sender.send_many([message, "two", (3, 4)])
    await other.send(message)
    await other.send_many([message])


def send_on(delivery: Delivery, sender: Sender) -> None:
    sender.send(delivery.message)
    sender.send(Message(delivery.body, properties=delivery.message.properties))
    if delivery.body is not None:
        sender.send(delivery.body)


def sendable(sender: Sender, body: SendableBody) -> Message:
    sender.send(body)
    return Message(body)


def received_sections(body: Body) -> int:
    return len(body[0]) if isinstance(body, SequenceSections) else 0


def received_message(message: Message) -> None:
    shop: int = message.properties["shop"]
    assert_type(shop, int)
    if message.properties is None or message.annotations is None:
        return
    for name, value in message.properties.items():
        f"{name.upper()} {value}"
    f"{message.annotations['x-opt-sequence']} {message.instructions[proton.ulong(7)]}"
    assert_type(message.body, Body)
    assert_type((message.ttl, message.expiry_time, message.creation_time), tuple[float, float, float])
    assert_type((message.priority, message.delivery_count, message.group_sequence), tuple[int, int, int])
    assert_type((message.durable, message.first_acquirer, message.inferred), tuple[bool, bool, bool])
    assert_type((message.id, message.correlation_id), tuple[Id, Id])
    assert_type((message.user_id, message.content_type, message.content_encoding), tuple[bytes, str, str])
    assert_type((message.address, message.subject, message.reply_to), tuple[Text, Text, Text])
    assert_type((message.group_id, message.reply_to_group_id), tuple[Text, Text])
    assert_type(message.encode(), bytes)


def body_of_a_delivery(delivery: Delivery, other: aio.Delivery) -> str:
    match other.body:
        case {"item": str(item), "quantity": int(quantity)}:
            return item.upper() * quantity
        case [str(first), *rest]:
            return first.upper() + shown(rest)
        case _:
            pass
    match delivery.body:
        case str() as text:
            return text
        case dict() as entries:
            return ", ".join(f"{key}: {shown(value)}" for key, value in entries.items())
        case body:
            return shown(body)


def shown(body: Body) -> str:  # noqa: C901 - one case for each type
    """Handle every type of body, so that none is left."""
    match body:
        case None:
            return "nothing"
        case bool():
            return "yes" if body else "no"
        case proton.timestamp():
            return datetime.fromtimestamp(body / 1000, UTC).isoformat()
        case int() | float():
            return str(body + 1)
        case str():
            return body.upper()
        case bytes():
            return body.hex()
        case uuid.UUID():
            return body.hex
        case proton.Described():
            return repr(body)
        case proton.Array():
            return repr(body)
        case list():
            return ", ".join(shown(each) for each in body)
        case dict():
            return ", ".join(shown(each) for each in body.values())
        case _:
            assert_never(body)


def shown_without_lists(body: Body) -> str:
    match body:
        case None | bool() | int() | float() | str() | bytes() | uuid.UUID():
            return str(body)
        case proton.Described() | proton.Array() | dict():
            return repr(body)
        case _:
            assert_never(body)  # type: ignore[arg-type]
