"""Requests to the cluster-admin node: each gets one answer, whose status is no internal error.

An input is a script whose steps are requests. Operation, type and name are existing ones or any text,
and the arguments are any values. A request may also be raw bytes (``Kind.RAW``). Requests arrive one by
one, or in the same loop iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any
from unittest import mock

import proton

from broker_stub.amqp.node_names import (
    BINDING_TYPE,
    EXCHANGE_TYPE,
    FOLLOWED_QUEUE_TYPE,
    MEMBER_TYPE,
    QUEUE_TYPE,
)
from broker_stub.broker import Broker
from broker_stub.management.queues import QueueOperations
from broker_stub.management.request import Response
from broker_stub.queueing.queue import Queue
from tests.fuzz.members import OneMember
from tests.fuzz.script import Kind, Step, parse
from tests.fuzz.target import Defect, Target
from tests.fuzz.values import Reader, Writer

_OPERATIONS = (
    *("CREATE", "READ", "UPDATE", "DELETE", "QUERY"),
    *("PROMOTE", "DEMOTE", "SET-PRIMARY", "STOP", "CHECK-ARBITER"),
)
_TYPES = QUEUE_TYPE, EXCHANGE_TYPE, BINDING_TYPE, MEMBER_TYPE, FOLLOWED_QUEUE_TYPE
_NAMES = "a", "b", "c"
_WORDS = (
    *_NAMES,
    *_OPERATIONS,
    *_TYPES,
    *("name", "type", "exchange", "queue", "key", "members", "primary", "generation", "force", "offset"),
    *("count", "attributeNames", "x-qpid-replicate", "x-qpid-site-replicate", "replicate", "applying"),
    *("missing", "from", "none", "configuration", "all", "direct", "fanout", "topic", "replication"),
    *("create", "park", "enqueues"),
    *("127.0.0.1:5672", "amqp://127.0.0.1", "a.*.#", "password-file", "identity"),
)


class ManagementRequests(Target):
    name = "management"
    scripted = True

    def __init__(self) -> None:
        self._members = OneMember()

    def run(self, data: bytes) -> None:
        broker = self._members.make()
        answers = broker.addresses.declare("answers")
        number = 0
        for step in parse(data):
            if step.kind is Kind.TIME:
                self._members.loop.advance(len(step.body))
                continue
            message = self._request(step, number)
            self._members.call(
                lambda encoded=message: broker.management(admin=True, by="fuzz").request(encoded)
            )
            number += 1
            if not step.at_once:
                self._members.loop.turn()
            if number_of_answers(answers) > number:
                raise Defect("more answers than requests")
        self._members.loop.turn()
        self._check(answers)
        self._close(broker)

    def _close(self, broker: Broker) -> None:
        broker._listener.close()
        self._members.end()

    @staticmethod
    def _request(step: Step, number: int) -> bytes:
        if step.kind is Kind.RAW:
            return step.body
        reader = Reader(step.body, _WORDS)
        properties = {
            "operation": reader.choice(_OPERATIONS) if reader.byte() % 16 else reader.value(),
            "type": reader.choice(_TYPES) if reader.byte() % 16 else reader.value(),
            "name": reader.choice(_NAMES) if reader.byte() % 4 else reader.text(),
        }
        if not reader.byte() % 4:
            properties.update({str(key): value for key, value in reader.map().items()})
        body = reader.map() if reader.byte() % 16 else reader.value()
        message = proton.Message(id=number, reply_to="answers", properties=properties, body=body)
        try:
            return bytes(message.encode())
        except (proton.ProtonException, TypeError, ValueError, OverflowError):
            return b""  # no client can send this

    @staticmethod
    def _check(answers: Queue) -> None:
        for number in answers.ids():
            answer = proton.Message()
            answer.decode(answers.message(number).data)  # type: ignore[union-attr]
            status, text = answer.properties["statusCode"], answer.properties["statusDescription"]
            if status == HTTPStatus.INTERNAL_SERVER_ERROR:
                raise Defect(f"the member failed: {text}")
            if status not in list(HTTPStatus) or not text:
                raise Defect(f"no status: {status} {text}")

    def planted(self) -> AbstractContextManager[object]:
        """The description of a queue that does not replicate is wrong."""
        original = QueueOperations._read

        async def wrong(self: QueueOperations, request: object) -> Response:
            response = await original(self, request)  # type: ignore[arg-type]
            if response.body["replicate"] == "none":
                raise KeyError("replicate")
            return response

        return mock.patch.object(QueueOperations, "_read", wrong)

    def close(self) -> None:
        self._members.close()


def request(operation: str, kind: str, name: str, arguments: Mapping[str, Any]) -> Step:
    """Return the step of this request, for the seeds."""
    chosen = (_OPERATIONS.index(operation), _TYPES.index(kind), _NAMES.index(name))
    head = b"".join(bytes([1, each]) for each in chosen) + b"\x01\x01"
    return Step(Kind.FRAME, head + Writer(_WORDS).map(arguments))


def number_of_answers(queue: Queue) -> int:
    """Return the number of messages."""
    return len(list(queue.ids()))


TARGET = ManagementRequests
