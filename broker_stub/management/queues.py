"""``haclient.queue``: queues with depth and counters; ``haclient.followed_queue``: queues of a link."""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from broker_stub.management.managed import Managed, check_serves
from broker_stub.management.request import (
    Operation,
    Request,
    RequestRefusedError,
    Response,
    invalid,
    select,
)
from broker_stub.management.wiring import free_name, not_found, replicate_of, unchangeable
from broker_stub.queueing.nodes import REPLICATE_PROPERTY, Addresses, site_mode
from broker_stub.queueing.options import OPTION_NAMES, QueueOptionError, QueueOptions
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SITE_PROPERTY, SiteMode


class QueueOperations:
    """Creates, shows and deletes queues; only the site mode of a queue can be changed."""

    def __init__(self, broker: Managed) -> None:
        self._broker = broker
        self.operations: dict[str, Operation] = {
            "CREATE": self._create,
            "READ": self._read,
            "UPDATE": self._update,
            "DELETE": self._delete,
            "QUERY": self._query,
        }

    async def _create(self, request: Request) -> Response:
        check_serves(self._broker)
        request.only("name", "replicate", REPLICATE_PROPERTY, SITE_PROPERTY, *OPTION_NAMES)
        name, site = free_name(self._broker.addresses, request), site_mode(request.text(SITE_PROPERTY))
        queue = self._broker.addresses.declare(
            name, replicate=replicate_of(request), site=site, options=_options(request)
        )
        await self._broker.wiring_settled()
        return Response(queue_facts(queue), HTTPStatus.CREATED)

    async def _read(self, request: Request) -> Response:
        return Response(queue_facts(self._find(request)))

    async def _update(self, request: Request) -> Response:
        check_serves(self._broker)
        queue = self._find(request)
        if request.arguments.keys() != {SITE_PROPERTY}:
            raise unchangeable("queue", queue.name)
        self._broker.addresses.set_site(queue, site_mode(request.text(SITE_PROPERTY)))
        await self._broker.wiring_settled()
        return Response(queue_facts(queue))

    async def _delete(self, request: Request) -> Response:
        check_serves(self._broker)
        queue = self._find(request)
        if queue.temporary:
            raise RequestRefusedError(
                HTTPStatus.CONFLICT, f"{queue.name!r} is temporary: it ends with its connection"
            )
        _check_not_needed(queue, self._broker.addresses)
        self._broker.addresses.delete(queue)
        await self._broker.wiring_settled()
        return Response({}, HTTPStatus.NO_CONTENT)

    async def _query(self, request: Request) -> Response:
        return select(request, self._broker.addresses, queue_facts)

    def _find(self, request: Request) -> Queue:
        addresses = self._broker.addresses
        found = (
            addresses.by_identity(request.identity)
            if request.identity
            else addresses.find_queue(request.name)
        )
        if found is None:
            raise not_found("queue", request.identity or request.name)
        return found


class FollowedQueueOperations:
    """Lists the queues here that a link to another site has filled; only the link creates them."""

    def __init__(self, broker: Managed) -> None:
        self._broker = broker
        self.operations: dict[str, Operation] = {"QUERY": self._query}

    async def _query(self, request: Request) -> Response:
        return select(request, self._broker.followed_queues(), _followed_facts)


def _options(request: Request) -> QueueOptions:
    try:
        return QueueOptions.of(request.arguments)
    except QueueOptionError as error:
        raise invalid(str(error)) from None


def _check_not_needed(queue: Queue, addresses: Addresses) -> None:
    """Refuse to delete the replication queue while there are events: the backups would miss some."""
    site_queues = [each.name for each in addresses if each.site is not SiteMode.NONE]
    if queue.name == REPLICATION_QUEUE and site_queues:
        raise RequestRefusedError(
            HTTPStatus.CONFLICT, f"{queue.name!r} holds the events of {', '.join(sorted(site_queues))}"
        )


def queue_facts(queue: Queue) -> dict[str, Any]:
    """Return the attributes of a queue, with its depth and counters."""
    facts = {"name": queue.name, "identity": queue.identity, "replicate": str(queue.replicate)}
    facts["site_replicate"] = str(queue.site)
    load = {"depth": queue.depth, "held": queue.held, "bytes": queue.size, "consumers": queue.consumers}
    options = {**asdict(queue.options), "deliver": str(queue.options.deliver)}
    return {**facts, **load, "temporary": queue.temporary, **asdict(queue.counters), **options}


def _followed_facts(found: tuple[str, str]) -> dict[str, Any]:
    link, queue = found
    return {"link": link, "queue": queue}
