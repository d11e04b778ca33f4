"""``haclient.followed_queue``: the queues here that a link to another site has filled."""

from __future__ import annotations

from typing import Any

from broker_stub.management.managed import Managed
from broker_stub.management.request import Operation, Request, Response, select


class FollowedQueueOperations:
    """Lists them with their links; a link makes them, so that they are only shown."""

    def __init__(self, broker: Managed) -> None:
        self._broker = broker
        self.operations: dict[str, Operation] = {"QUERY": self._query}

    async def _query(self, request: Request) -> Response:
        return select(request, self._broker.followed_queues(), _facts)


def _facts(found: tuple[str, str]) -> dict[str, Any]:
    link, queue = found
    return {"link": link, "queue": queue}
