"""``haclient.binding``: routes messages of an exchange to a queue.

A binding's name is ``exchange/queue/key``. Since names may contain slashes themselves, a request can give
``exchange``, ``queue`` and ``key`` as arguments instead.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from broker_stub.management.managed import Managed, check_serves
from broker_stub.management.request import Operation, Request, RequestRefusedError, Response, invalid, select
from broker_stub.management.wiring import not_found
from broker_stub.queueing.exchanges import Binding


class BindingOperations:
    """Creates, shows and deletes bindings; a binding cannot be changed."""

    def __init__(self, broker: Managed) -> None:
        self._broker = broker
        self.operations: dict[str, Operation] = {
            "CREATE": self._create,
            "READ": self._read,
            "DELETE": self._delete,
            "QUERY": self._query,
        }

    async def _create(self, request: Request) -> Response:
        check_serves(self._broker)
        request.only("exchange", "queue", "key")
        addresses = self._broker.addresses
        exchange_name, queue_name, key = _parts(request)
        exchange, queue = addresses.find_exchange(exchange_name), addresses.find_queue(queue_name)
        if exchange is None:
            raise not_found("exchange", exchange_name)
        if queue is None:
            raise not_found("queue", queue_name)
        if exchange.binding(queue, key) is not None:
            raise RequestRefusedError(
                HTTPStatus.CONFLICT, f"there is already a binding {exchange_name}/{queue_name}/{key}"
            )
        binding = addresses.bind(exchange, queue, key)
        await self._broker.wiring_settled()
        return Response(_facts(binding), HTTPStatus.CREATED)

    async def _read(self, request: Request) -> Response:
        return Response(_facts(self._find(request)))

    async def _delete(self, request: Request) -> Response:
        check_serves(self._broker)
        self._broker.addresses.unbind(self._find(request))
        await self._broker.wiring_settled()
        return Response({}, HTTPStatus.NO_CONTENT)

    async def _query(self, request: Request) -> Response:
        return select(request, self._broker.addresses.bindings, _facts)

    def _find(self, request: Request) -> Binding:
        bindings = self._broker.addresses.bindings
        if request.arguments:
            found = [binding for binding in bindings if _key(binding) == _parts(request)]
            name = "/".join(_parts(request))
        else:
            found = [binding for binding in bindings if _name(binding) == request.name]
            name = request.name
        if not found:
            raise not_found("binding", name)
        if len(found) > 1:
            raise RequestRefusedError(
                HTTPStatus.CONFLICT, f"{name!r} names {len(found)} bindings: give exchange, queue and key"
            )
        return found[0]


def _parts(request: Request) -> tuple[str, str, str]:
    exchange, queue = request.text("exchange"), request.text("queue")
    if not exchange or not queue:
        raise invalid("a binding needs exchange and queue")
    return exchange, queue, request.text("key") or ""


def _key(binding: Binding) -> tuple[str, str, str]:
    return binding.exchange.name, binding.queue.name, binding.key


def _name(binding: Binding) -> str:
    return "/".join(_key(binding))


def _facts(binding: Binding) -> dict[str, Any]:
    exchange, queue, key = _key(binding)
    return {"name": _name(binding), "exchange": exchange, "queue": queue, "key": key}
