"""A management request and its response, for all types.

A request's own attributes are in its application properties, and the arguments in a map as its body.
``offset`` and ``count`` of a ``QUERY`` may be in either place.

Rules
-----
* A ``QUERY`` returns at most ``MAX_PAGE`` rows, even if it asks for more or for all. A client asks for the
  next page until one is empty. Rows keep their order; a deletion moves later rows up.

Source: AMQP Management 1.0, working draft 16, sections 2 and 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

import proton

from broker_stub.amqp.conditions import INVALID_FIELD
from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.amqp.node_names import MEMBER_TYPE
from haclient.cluster_url.endpoint import Endpoint

_T = TypeVar("_T")


class RequestRefusedError(Exception):
    """A request that is answered with a status other than 2xx."""

    def __init__(self, status: HTTPStatus, description: str) -> None:
        super().__init__(description)
        self.status = status
        self.description = description


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a successful request.

    :param properties: further application properties besides status and description.
    """

    body: Any = None
    status: HTTPStatus = HTTPStatus.OK
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One management request.

    :param type: the managed type: ``type``, or ``entityType`` if a ``QUERY`` has it.
    :param properties: all application properties.
    """

    operation: str
    type: str = MEMBER_TYPE
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, message: proton.Message) -> Request:
        """Read a request from its message."""
        properties: dict[str, Any] = message.properties or {}
        operation = properties.get("operation")
        kind = properties.get("entityType") or properties.get("type") or MEMBER_TYPE
        body = message.body if message.body is not None else {}
        if not isinstance(operation, str) or not isinstance(kind, str) or not isinstance(body, dict):
            raise RequestRefusedError(
                HTTPStatus.BAD_REQUEST, "a request needs the property operation, and a map as its body"
            )
        arguments = {str(key): value for key, value in body.items()}
        return cls(operation.upper(), kind, str(properties.get("name") or ""), arguments, properties)

    @property
    def identity(self) -> str:
        """The identity of the object, if the request gives no name."""
        return str(self.properties.get("identity") or "")

    def integer(self, name: str) -> int | None:
        """Return an integer of at least 0; ``None`` if it is omitted."""
        value = self.arguments.get(name, self.properties.get(name))
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise invalid(f"{name} must be a whole number from 0")
        return int(value)

    def text(self, name: str) -> str | None:
        """Return a text among the arguments; ``None`` if it is omitted or null."""
        value = self.arguments.get(name)
        if value is not None and not isinstance(value, str):
            raise invalid(f"{name} must be a text")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts among the arguments; empty if it is omitted or null."""
        value = self.arguments.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise invalid(f"{name} must be a list of texts")
        return value

    def address(self, name: str) -> Endpoint | None:
        """Return a ``host:port`` among the arguments; ``None`` if it is omitted or null."""
        text = self.text(name)
        return None if text is None else parse_address(name, text)

    def only(self, *names: str) -> None:
        """Refuse arguments that this operation does not have."""
        unknown = sorted(self.arguments.keys() - set(names))
        if unknown:
            known = ", ".join(names) or "none"
            raise invalid(f"{self.type} has no attribute {', '.join(unknown)} to {self.operation}: {known}")


# proton's encoder holds 65,535 values in a message; a row has some twenty, or the requested attributes.
MAX_PAGE = 500
_MAX_ATTRIBUTES = 100

Operation = Callable[[Request], Awaitable[Response]]


def invalid(description: str) -> RequestRefusedError:
    """Return the refusal of an invalid argument."""
    return RequestRefusedError(HTTPStatus.BAD_REQUEST, f"{INVALID_FIELD}: {description}")


def parse_address(name: str, text: str) -> Endpoint:
    """Parse an address, or raise a refusal that names the argument."""
    try:
        return parse_endpoint(text)
    except ValueError as error:
        raise invalid(f"{name}: {error}") from error


def select(request: Request, found: Iterable[_T], facts: Callable[[_T], dict[str, Any]]) -> Response:
    """Return the response to a ``QUERY``: the selected attributes and page of rows.

    An attribute that a row does not have is null. ``count`` in the properties is the number of rows.

    :param facts: makes the row of an object; only the rows of the page are made.
    """
    names = request.texts("attributeNames")
    if len(names) > _MAX_ATTRIBUTES:
        raise invalid(f"attributeNames has more than {_MAX_ATTRIBUTES} names")
    start, count = request.integer("offset") or 0, request.integer("count")
    size = MAX_PAGE if count is None else min(count, MAX_PAGE)
    remaining = iter(found)
    if not names and (first := next(remaining, None)) is not None:
        names = list(facts(first))
        remaining = itertools.chain((first,), remaining)
    results = [
        [row.get(name) for name in names]
        for row in map(facts, itertools.islice(remaining, start, start + size))
    ]
    return Response(
        {"attributeNames": names, "results": results}, properties={"count": proton.int32(len(results))}
    )
