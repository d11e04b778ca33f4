"""Every AMQP type, header field and large body between our clients and python-qpid-proton, over the
broker.

proton is the judge: our clients must receive its messages, and it must receive theirs, with equal types
and bits. The values are at the limits of the encodings (AMQP 1.0 part 1, section 1.6). The shims of
``tests/interop/qit`` test further clients if a checkout of qpid-interop-test exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection

from tests.interop.qit import dropin, native
from tests.interop.qit.large import Content
from tests.interop.qit.messages import json_of, message_for
from tests.interop.qit.shim import Client
from tests.interop.qit.values import PRIMITIVES
from tests.members import Member

_WAIT = 30.0

PRIMITIVE: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True, False],
    "ubyte": [0, 2**8 - 1],
    "ushort": [0, 2**8, 2**16 - 1],
    "uint": [0, 1, 2**8 - 1, 2**8, 2**32 - 1],
    "ulong": [0, 1, 2**8 - 1, 2**8, 2**53 + 1, 2**63, 2**64 - 1],
    "byte": [-(2**7), -1, 0, 2**7 - 1],
    "short": [-(2**15), -1, 0, 2**15 - 1],
    "int": [-(2**31), -(2**7) - 1, -(2**7), -1, 0, 2**7 - 1, 2**7, 2**31 - 1],
    "long": [-(2**63), -(2**7) - 1, -(2**7), -1, 0, 2**7 - 1, 2**7, 2**53 + 1, 2**63 - 1],
    # Zeros, one, the smallest and largest of each kind, infinities, a quiet NaN.
    "float": [
        "0x00000000",
        "0x80000000",
        "0x3f800000",
        "0x00000001",
        "0x7f7fffff",
        "0xff800000",
        "0x7fc00000",
    ],
    "double": [
        *("0x0000000000000000", "0x8000000000000000", "0x3ff0000000000000", "0x0000000000000001"),
        *("0x7fefffffffffffff", "0xfff0000000000000", "0x7ff8000000000000"),
    ],
    "char": [0, 0x41, 0xD7FF, 0xE000, 0x1F600, 0x10FFFF],
    "timestamp": [-1, 0, 2**31 * 1000, 253402300799999],
    "uuid": ["00000000-0000-0000-0000-000000000000", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"],
    "binary": ["", "00", "ff" * 255, "00" * 256],
    "string": ["", "a", "ü" * 127 + "a", "ü" * 128, "\0", "\N{GRINNING FACE}"],
    "symbol": ["", "a", "s" * 255, "s" * 256],
}
_EACH = [[kind, values[-1]] for kind, values in PRIMITIVE.items()]
COMPOUND: dict[str, list[Any]] = {
    "array": [
        {"element_type": "uint", "elements": []},
        {"element_type": "boolean", "elements": [True, False]},
        {"element_type": "binary", "elements": ["", "ff"]},
        {"element_type": "double", "elements": ["0x7ff0000000000000", "0x0000000000000000"]},
        {"element_type": "list", "elements": [[["int", 1]], [["string", "two"], ["null", None]]]},
        {"element_type": "map", "elements": [[[["string", "k"], ["long", 1]]], []]},
        {
            "element_type": "array",
            "elements": [
                {"element_type": "ubyte", "elements": [1]},
                {"element_type": "ubyte", "elements": [2, 3]},
            ],
        },
    ],
    "list": [[], _EACH, [["list", [["list", []]]], ["map", []]], [["null", None]] * 300],
    "map": [
        [],
        [[["string", kind], [kind, values[0]]] for kind, values in PRIMITIVE.items()],
        [[each, ["null", None]] for each in _EACH if each[0] not in ("null", "float", "double")],
        [[["binary", "6b6579"], ["map", [[["uint", 2], ["list", _EACH]]]]]],
    ],
    "described": [
        {"descriptor": ["symbol", "app:thing"], "value": ["list", _EACH]},
        {"descriptor": ["ulong", 2**40], "value": ["binary", "00ff"]},
        {"descriptor": ["binary", "6b6579"], "value": ["string", "by a binary descriptor"]},
    ],
}
HEADERS: list[dict[str, Any]] = [
    {},
    {"durable": True, "priority": 9, "ttl": 60_000, "first_acquirer": True},
    {"durable": False, "priority": 0, "first_acquirer": False},
]
JMS_HEADERS: list[dict[str, Any]] = [
    {"JMSCorrelationID": {"type": "string", "value": "c-1"}, "JMSReplyTo": {"type": "queue", "value": "q"}},
    {"JMSCorrelationID": {"type": "bytes", "value": "00ff"}, "JMSReplyTo": {"type": "topic", "value": "t"}},
    {"JMSType": {"value": "order"}},
]
PROPERTIES: dict[str, Any] = {
    "boolean": {"type": "boolean", "value": True},
    "byte": {"type": "byte", "value": "0xff"},
    "short": {"type": "short", "value": "0x8000"},
    "int": {"type": "int", "value": "0x7fffffff"},
    "long": {"type": "long", "value": "0x8000000000000000"},
    "float": {"type": "float", "value": "0x80000000"},
    "double": {"type": "double", "value": "0x7ff0000000000000"},
    "string": {"type": "string", "value": ""},
}


class _Proton:
    """The judge, with the interface of the other clients."""

    @staticmethod
    def send(url: str, queue: str, messages: Sequence[proton.Message]) -> None:
        connection = BlockingConnection(url, timeout=_WAIT)
        sender = connection.create_sender(queue)
        for message in messages:
            sender.send(message)
        connection.close()

    @staticmethod
    def receive(url: str, queue: str, count: int, _timeout: float) -> Sequence[proton.Message]:
        connection = BlockingConnection(url, timeout=_WAIT)
        receiver = connection.create_receiver(queue, credit=count)
        messages = []
        for _ in range(count):
            messages.append(receiver.receive())
            receiver.accept()
        connection.close()
        return messages


PROTON = Client(send=_Proton.send, receive=_Proton.receive)
OURS = {"haclient": native.CLIENT, "drop-in": dropin.CLIENT}
PAIRS = [
    *(pytest.param(client, PROTON, id=f"{name} to proton") for name, client in OURS.items()),
    *(pytest.param(PROTON, client, id=f"proton to {name}") for name, client in OURS.items()),
    pytest.param(OURS["haclient"], OURS["drop-in"], id="haclient to drop-in"),
    pytest.param(OURS["drop-in"], OURS["haclient"], id="drop-in to haclient"),
]


def passed_on(
    broker: Member, sender: Client, receiver: Client, messages: Sequence[proton.Message]
) -> list[dict[str, Any]]:
    """Return the messages that the receiver gets from the sender, as JSON."""
    sender.send(broker.url, "types", messages)
    found = receiver.receive(broker.url, "types", len(messages), _WAIT)
    return [json_of(message, position) for position, message in enumerate(found)]


def facts(messages: Sequence[proton.Message]) -> list[dict[str, Any]]:
    """Return the sent messages, as JSON."""
    return [json_of(message, position) for position, message in enumerate(messages)]


def test_there_are_values_of_every_type() -> None:
    assert set(PRIMITIVE) == set(PRIMITIVES)


@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_values_of_every_type_arrive_to_the_bit(broker: Member, sender: Client, receiver: Client) -> None:
    data = [(kind, value) for kind, values in {**PRIMITIVE, **COMPOUND}.items() for value in values]
    if PROTON in (sender, receiver):
        data = [(kind, value) for kind, value in data if kind != "map" or not _has_binary_key(value)]
    messages = [
        message_for({"index": index, "type": kind, "value": value}, kind)
        for index, (kind, value) in enumerate(data)
    ]
    found = passed_on(broker, sender, receiver, messages)
    for (kind, value), one, wanted in zip(data, found, facts(messages), strict=True):
        assert (one["type"], one["value"]) == (wanted["type"], wanted["value"]), (kind, value)


def _has_binary_key(value: Any) -> bool:
    return any(key[0] == "binary" for key, _ in value)


@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_header_properties_and_annotations_arrive(broker: Member, sender: Client, receiver: Client) -> None:
    data = {"index": 7, "type": "string", "value": "text"}
    messages = [message_for(data, "string", header=header) for header in HEADERS]
    messages += [message_for(data, "string", jms=True, headers=headers) for headers in JMS_HEADERS]
    messages.append(message_for(data, "string", jms=True, properties=PROPERTIES))
    # The broker orders by priority.
    found = sorted(passed_on(broker, sender, receiver, messages), key=repr)
    for each in (found, wanted := sorted(facts(messages), key=repr)):
        for one in each:
            one["message_header"]["ttl"] = bool(one["message_header"]["ttl"])
            one.get("properties", {}).pop("_AMQ_DUPL_ID", None)
            if one.get("properties") == {}:
                del one["properties"]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
@pytest.mark.parametrize("kind", ["binary", "string", "list", "map", "array", "described"])
def test_large_bodies_arrive_whole(broker: Member, sender: Client, receiver: Client, kind: str) -> None:
    """The elements do not divide a frame evenly, and the longest body is a mebibyte and one byte."""
    size = {"size": 2**20 + 1} if kind in ("binary", "string") else {"elements": 7, "element_size": 50_021}
    content = Content(kind, seed=5, **size)
    sender.send(broker.url, "large", [proton.Message(body=content.body())])
    (found,) = receiver.receive(broker.url, "large", 1, _WAIT)
    assert content.compare(found.body)["match"]


@pytest.mark.parametrize("client", OURS.values(), ids=OURS)
def test_a_stream_and_bytes_of_jms_are_sequences_and_data(broker: Member, client: Client) -> None:
    """Qpid JMS sends them so. proton shows it by ``inferred``."""
    sent = [
        message_for({"index": 0, "type": "binary", "value": "00ff"}, "binary", jms=True),
        message_for({"index": 1, "type": "string", "value": "one"}, "list", jms=True),
        message_for({"index": 2, "type": "string", "value": "text"}, "string", jms=True),
    ]
    client.send(broker.url, "jms", sent)
    found = PROTON.receive(broker.url, "jms", len(sent), _WAIT)
    assert [message.inferred for message in found] == [True, True, False]
    assert [json_of(message, 0)["type"] for message in found] == ["bytes", "string", "text"]
