"""What the types of the wiring have in common: names, and ``x-qpid-replicate``."""

from __future__ import annotations

from http import HTTPStatus

from broker_stub.management.request import Request, RequestRefusedError, invalid
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import MAX_NAME, REPLICATE_PROPERTY, RESERVED, Addresses, replicate_mode


def free_name(addresses: Addresses, request: Request) -> str:
    """The name of what is to be made: one that is allowed, and free."""
    name = request.name or request.text("name") or ""
    if not 0 < len(name) <= MAX_NAME or name.startswith(RESERVED):
        raise invalid(
            f"a name has 1 to {MAX_NAME} characters and does not start with {' or '.join(RESERVED)}"
        )
    taken = {"a queue": addresses.find_queue(name), "an exchange": addresses.find_exchange(name)}
    for kind, found in taken.items():
        if found is not None:
            raise RequestRefusedError(HTTPStatus.CONFLICT, f"there is already {kind} {name!r}")
    return name


def not_found(kind: str, name: str) -> RequestRefusedError:
    """There is none of that name."""
    return RequestRefusedError(HTTPStatus.NOT_FOUND, f"there is no {kind} {name!r}")


def unchangeable(kind: str, name: str) -> RequestRefusedError:
    """An ``UPDATE``: how much of it is replicated decides what the backups' copies hold."""
    return RequestRefusedError(
        HTTPStatus.METHOD_NOT_ALLOWED,
        f"nothing of the {kind} {name!r} can be changed: delete it and create it anew",
    )


def replicate_of(request: Request) -> Replicate | None:
    """What the request says of replication; ``None`` for the member's default."""
    given = {mode for name in (REPLICATE_PROPERTY, "replicate") if (mode := request.text(name)) is not None}
    if len(given) > 1:
        raise invalid(f"{REPLICATE_PROPERTY} and replicate contradict each other")
    return replicate_mode(next(iter(given), None))
