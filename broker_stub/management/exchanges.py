"""``haclient.exchange``: creates, shows, changes and deletes exchanges."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from broker_stub.management.managed import Managed, check_serves
from broker_stub.management.request import Operation, Request, Response, invalid, select
from broker_stub.management.wiring import free_name, not_found, replicate_of, unchangeable
from broker_stub.queueing.exchanges import Exchange, ExchangeType
from broker_stub.queueing.nodes import REPLICATE_PROPERTY
from broker_stub.sites.inbound import APPLYING, CREATE, KEEP, MISSING
from broker_stub.sites.password_file import PasswordFileError
from broker_stub.sites.source_config import FROM, PASSWORD_FILE, SourceConfig, SourceConfigError


class ExchangeOperations:
    """Creates, shows and deletes exchanges; only ``applying`` of a replication exchange can be changed."""

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
        kind = _kind(request)
        own = (FROM, PASSWORD_FILE, MISSING) if kind is ExchangeType.REPLICATION else ()
        request.only("name", "type", "replicate", REPLICATE_PROPERTY, *own)
        options = _options(request)
        await self._check_password(options.get(PASSWORD_FILE))
        addresses = self._broker.addresses
        name = free_name(addresses, request)
        exchange = addresses.declare_exchange(name, kind, replicate=replicate_of(request), options=options)
        await self._broker.wiring_settled()
        return Response(_facts(exchange), HTTPStatus.CREATED)

    async def _check_password(self, path: str | None) -> None:
        """Refuse a link whose password cannot be read, so that the operator learns the reason at once."""
        if path is None:
            return
        try:
            await self._broker.check_link_password(path)
        except PasswordFileError as error:
            raise invalid(str(error)) from error

    async def _read(self, request: Request) -> Response:
        return Response(_facts(self._find(request)))

    async def _update(self, request: Request) -> Response:
        check_serves(self._broker)
        exchange = self._find(request)
        if exchange.type is not ExchangeType.REPLICATION:
            raise unchangeable("exchange", exchange.name)
        request.only(APPLYING)
        applying = request.arguments.get(APPLYING)
        if not isinstance(applying, bool):
            raise invalid(f"{APPLYING} must be true or false")
        self._broker.addresses.change_exchange(exchange, {**exchange.options, APPLYING: applying})
        await self._broker.wiring_settled()
        return Response(_facts(exchange))

    async def _delete(self, request: Request) -> Response:
        check_serves(self._broker)
        self._broker.addresses.delete_exchange(self._find(request))
        await self._broker.wiring_settled()
        return Response({}, HTTPStatus.NO_CONTENT)

    async def _query(self, request: Request) -> Response:
        return select(request, self._broker.addresses.exchanges, _facts)

    def _find(self, request: Request) -> Exchange:
        addresses = self._broker.addresses
        found = (
            addresses.exchange_by_identity(request.identity)
            if request.identity
            else addresses.find_exchange(request.name)
        )
        if found is None:
            raise not_found("exchange", request.identity or request.name)
        return found


def _kind(request: Request) -> ExchangeType:
    text = request.text("type") or ""
    try:
        return ExchangeType(text)
    except ValueError:
        raise invalid(f"type must be one of {', '.join(ExchangeType)}, not {text!r}") from None


def _options(request: Request) -> dict[str, Any]:
    """Return the options of a replication exchange; empty for any other."""
    missing = request.text(MISSING)
    if missing not in (None, CREATE, KEEP):
        raise invalid(f"{MISSING} is {CREATE} or {KEEP}, and not {missing!r}")
    given = {name: request.text(name) for name in (FROM, PASSWORD_FILE, MISSING)}
    options = {name: value for name, value in given.items() if value is not None}
    try:
        SourceConfig.of(options)
    except SourceConfigError as error:
        raise invalid(f"{FROM}: {error}") from error
    return options


def _facts(exchange: Exchange) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "identity": exchange.identity,
        "type": str(exchange.type),
        "replicate": str(exchange.replicate),
    }
