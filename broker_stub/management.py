"""The management node of a member: requests in, responses out.

A request is a message to ``$management`` with the application properties ``operation``, ``type``
and ``name``, arguments in a map as its body, and a ``reply-to``.  The response carries
``statusCode`` and ``statusDescription``, and the request's correlation id.

====================  ==========================  ==================================================
type                  operation                   arguments, answer
====================  ==========================  ==================================================
``haclient.member``   ``READ``                    the member's status
``haclient.member``   ``PROMOTE``                 ``generation`` (at least), ``force``; the status
``haclient.member``   ``DEMOTE``                  ``primary`` (``host:port``); the new status
``haclient.member``   ``SET-PRIMARY``             ``primary``, ``generation``; the new status
``haclient.member``   ``STOP``                    nothing
``haclient.queue``    ``QUERY``                   ``attributeNames`` and ``results``
``haclient.queue``    ``READ``                    ``name`` in the properties; its depth and counters
====================  ==========================  ==================================================

Source: AMQP Management 1.0, working draft 16, sections 2 and 3.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

import proton

from broker_stub.address import Address
from broker_stub.membership import MoveRefusedError

logger = logging.getLogger("broker_stub.management")

MEMBER_TYPE = "haclient.member"
QUEUE_TYPE = "haclient.queue"


class RequestRefusedError(Exception):
    """A request that is answered with another status than 200."""

    def __init__(self, status: HTTPStatus, description: str) -> None:
        super().__init__(description)
        self.status = status
        self.description = description


class Member(Protocol):
    """What can be managed."""

    def status(self) -> dict[str, Any]:
        """What the member is and has."""

    def queue_status(self) -> list[dict[str, Any]]:
        """Depth and counters of every queue."""

    async def promote(self, *, at_least: int = 0, force: bool = False) -> None:
        """Become the primary."""

    async def demote(self, primary: Address | None = None) -> None:
        """Become passive."""

    def follow(self, primary: Address | None, *, generation: int = 0) -> None:
        """Learn where the primary is."""

    def request_stop(self) -> None:
        """Stop soon."""


@dataclass(frozen=True, slots=True)
class Request:
    """One management request."""

    operation: str
    type: str = MEMBER_TYPE
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, message: proton.Message) -> Request:
        """Read a request out of its message."""
        properties: dict[str, Any] = message.properties or {}
        operation, kind = properties.get("operation"), properties.get("type") or MEMBER_TYPE
        body = message.body if message.body is not None else {}
        if not isinstance(operation, str) or not isinstance(kind, str) or not isinstance(body, dict):
            raise RequestRefusedError(
                HTTPStatus.BAD_REQUEST, "a request needs the property operation, and a map as its body"
            )
        return cls(operation.upper(), kind, str(properties.get("name") or ""), body)

    def number(self, name: str) -> int:
        """A non-negative whole number among the arguments; 0 when it is left out."""
        value = self.arguments.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise RequestRefusedError(HTTPStatus.BAD_REQUEST, f"{name} must be a whole number from 0")
        return int(value)

    def address(self, name: str) -> Address | None:
        """A ``host:port`` among the arguments; ``None`` when it is left out or null."""
        value = self.arguments.get(name)
        if value is None:
            return None
        try:
            return Address.parse(str(value))
        except ValueError as error:
            raise RequestRefusedError(HTTPStatus.BAD_REQUEST, f"{name}: {error}") from error


class Management:
    """Answers requests about one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._operations: dict[tuple[str, str], Callable[[Request], Any]] = {
            (MEMBER_TYPE, "READ"): self._read,
            (MEMBER_TYPE, "PROMOTE"): self._promote,
            (MEMBER_TYPE, "DEMOTE"): self._demote,
            (MEMBER_TYPE, "SET-PRIMARY"): self._set_primary,
            (MEMBER_TYPE, "STOP"): self._stop,
            (QUEUE_TYPE, "QUERY"): self._query_queues,
            (QUEUE_TYPE, "READ"): self._read_queue,
        }

    async def answer(self, message: proton.Message, *, admin: bool) -> proton.Message:
        """Carry out the request in a message; the response says how that went."""
        status, description, body = HTTPStatus.OK, "OK", None
        try:
            result = self._perform(message, admin=admin)
            body = await result if inspect.isawaitable(result) else result
        except RequestRefusedError as refused:
            status, description = refused.status, refused.description
        except MoveRefusedError as refused:
            status, description = HTTPStatus.CONFLICT, str(refused)
        correlation = message.correlation_id if message.correlation_id is not None else message.id
        return proton.Message(
            address=message.reply_to,
            correlation_id=correlation,
            properties={"statusCode": proton.int32(status), "statusDescription": description},
            body=body,
        )

    def _perform(self, message: proton.Message, *, admin: bool) -> Any:
        if not admin:
            raise RequestRefusedError(HTTPStatus.FORBIDDEN, "management is for the cluster-admin")
        request = Request.of(message)
        operation = self._operations.get((request.type, request.operation))
        if operation is None:
            raise RequestRefusedError(
                HTTPStatus.NOT_IMPLEMENTED, f"no operation {request.operation} on {request.type}"
            )
        if request.operation not in ("READ", "QUERY"):
            logger.info("management: %s %s", request.operation, request.type)
        return operation(request)

    def _read(self, _request: Request) -> dict[str, Any]:
        return self._member.status()

    async def _promote(self, request: Request) -> dict[str, Any]:
        force = request.arguments.get("force") is True
        await self._member.promote(at_least=request.number("generation"), force=force)
        return self._member.status()

    async def _demote(self, request: Request) -> dict[str, Any]:
        await self._member.demote(request.address("primary"))
        return self._member.status()

    def _set_primary(self, request: Request) -> dict[str, Any]:
        self._member.follow(request.address("primary"), generation=request.number("generation"))
        return self._member.status()

    def _stop(self, _request: Request) -> None:
        self._member.request_stop()

    def _query_queues(self, _request: Request) -> dict[str, Any]:
        queues = self._member.queue_status()
        names = list(queues[0]) if queues else []
        return {"attributeNames": names, "results": [list(queue.values()) for queue in queues]}

    def _read_queue(self, request: Request) -> dict[str, Any]:
        for queue in self._member.queue_status():
            if queue["name"] == request.name:
                return queue
        raise RequestRefusedError(HTTPStatus.NOT_FOUND, f"there is no queue {request.name!r}")
