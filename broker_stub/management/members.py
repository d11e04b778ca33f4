"""``haclient.member``: the member itself."""

from __future__ import annotations

from broker_stub.management.managed import Managed
from broker_stub.management.request import Operation, Request, Response, invalid, parse_address
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.url import ClusterURL


class MemberOperations:
    """Reads, promotes, demotes and stops the member."""

    def __init__(self, broker: Managed) -> None:
        self._broker = broker
        self.operations: dict[str, Operation] = {
            "READ": self._read,
            "UPDATE": self._update,
            "PROMOTE": self._promote,
            "DEMOTE": self._demote,
            "CHECK-ARBITER": self._check_arbiter,
            "SET-PRIMARY": self._set_primary,
            "STOP": self._stop,
        }

    async def _read(self, _request: Request) -> Response:
        return Response(self._broker.status())

    async def _update(self, request: Request) -> Response:
        request.only("members", "broker_url")
        members = tuple(parse_address("members", text) for text in request.texts("members"))
        if not members:
            raise invalid("members must be a list of at least one host:port")
        broker_url = request.text("broker_url") or ""
        if broker_url:
            try:
                ClusterURL.parse(broker_url)
            except ClusterURLError as error:
                raise invalid(f"broker_url: {error}") from error
        await self._broker.set_members(members, broker_url)
        return Response(self._broker.status())

    async def _promote(self, request: Request) -> Response:
        force = request.arguments.get("force") is True
        warning = await self._broker.promote(at_least=request.integer("generation") or 0, force=force)
        return Response({**self._broker.status(), "warning": warning})

    async def _demote(self, request: Request) -> Response:
        await self._broker.demote(request.address("primary"))
        return Response(self._broker.status())

    async def _check_arbiter(self, _request: Request) -> Response:
        await self._broker.check_arbiter()
        return Response(self._broker.status())

    async def _set_primary(self, request: Request) -> Response:
        self._broker.follow(request.address("primary"), generation=request.integer("generation") or 0)
        return Response(self._broker.status())

    async def _stop(self, _request: Request) -> Response:
        self._broker.request_stop()
        return Response()
