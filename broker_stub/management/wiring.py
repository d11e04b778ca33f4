"""Names and ``x-qpid-replicate``, for queues, exchanges and bindings."""

from __future__ import annotations

from http import HTTPStatus

from broker_stub.management.request import Request, RequestRefusedError, invalid
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import REPLICATE_PROPERTY, RESERVED, Addresses, replicate_mode
from broker_stub.queueing.options import MAX_NAME


def free_name(addresses: Addresses, request: Request) -> str:
    """Return the name of a new object: valid, and not in use."""
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
    """Return the refusal of an unknown name."""
    return RequestRefusedError(HTTPStatus.NOT_FOUND, f"there is no {kind} {name!r}")


def unchangeable(kind: str, name: str) -> RequestRefusedError:
    """Return the refusal of an ``UPDATE``: the backups' copies depend on the replication mode."""
    return RequestRefusedError(
        HTTPStatus.METHOD_NOT_ALLOWED,
        f"nothing of the {kind} {name!r} can be changed: delete it and create it anew",
    )


def replicate_of(request: Request) -> Replicate | None:
    """Return the replication mode in the request; ``None`` for the member's default."""
    given = {mode for name in (REPLICATE_PROPERTY, "replicate") if (mode := request.text(name)) is not None}
    if len(given) > 1:
        raise invalid(f"{REPLICATE_PROPERTY} and replicate contradict each other")
    return replicate_mode(next(iter(given), None))
