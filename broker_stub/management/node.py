"""The management node: authorizes a request, dispatches it by type, and answers it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

import proton

from broker_stub.election.roles import MoveRefusedError
from broker_stub.management.bindings import BindingOperations
from broker_stub.management.exchanges import ExchangeOperations
from broker_stub.management.managed import Managed
from broker_stub.management.members import MemberOperations
from broker_stub.management.queues import QueueOperations
from broker_stub.management.request import (
    BINDING_TYPE,
    EXCHANGE_TYPE,
    MEMBER_TYPE,
    QUEUE_TYPE,
    Operation,
    Request,
    RequestRefusedError,
    Response,
)
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.store import StoreFailedError

logger = logging.getLogger("broker_stub.management")

_STATUS = {
    "amqp:not-found": HTTPStatus.NOT_FOUND,
    "amqp:not-allowed": HTTPStatus.CONFLICT,
    "amqp:precondition-failed": HTTPStatus.CONFLICT,
    "amqp:illegal-state": HTTPStatus.CONFLICT,
    "amqp:unauthorized-access": HTTPStatus.FORBIDDEN,
}
"""The status of each AMQP condition; 400 for any other."""


class Management:
    """Answers requests about one broker."""

    def __init__(self, broker: Managed) -> None:
        self._types: Mapping[str, Mapping[str, Operation]] = {
            MEMBER_TYPE: MemberOperations(broker).operations,
            QUEUE_TYPE: QueueOperations(broker).operations,
            EXCHANGE_TYPE: ExchangeOperations(broker).operations,
            BINDING_TYPE: BindingOperations(broker).operations,
        }

    async def answer(self, message: proton.Message, *, admin: bool) -> proton.Message:
        """Perform the request in a message, and return the response.

        :param admin: whether the cluster-admin sent it.
        """
        try:
            response = await self._perform(message, admin=admin)
            description = response.status.phrase
        except Exception as error:  # noqa: BLE001  (the client gets the error; what is not a refusal is logged)
            status, description = _refusal(error)
            response = Response(status=status)
        return _message(message, response, description)

    async def _perform(self, message: proton.Message, *, admin: bool) -> Response:
        if not admin:
            raise RequestRefusedError(HTTPStatus.FORBIDDEN, "management is for the cluster-admin")
        request = Request.of(message)
        operation = self._types.get(request.type, {}).get(request.operation)
        if operation is None:
            raise RequestRefusedError(
                HTTPStatus.NOT_IMPLEMENTED, f"no operation {request.operation} on {request.type}"
            )
        if request.operation not in ("READ", "QUERY"):
            logger.info("management: %s %s %s", request.operation, request.type, request.name)
        return await operation(request)


def _refusal(error: Exception) -> tuple[HTTPStatus, str]:
    match error:
        case RequestRefusedError():
            return error.status, error.description
        case AddressRefusedError():
            status = _STATUS.get(error.condition, HTTPStatus.BAD_REQUEST)
            return status, f"{error.condition}: {error.description}"
        case MoveRefusedError():
            return HTTPStatus.CONFLICT, str(error)
        case StoreFailedError():
            return HTTPStatus.INTERNAL_SERVER_ERROR, f"the store failed: {error}"
        case _:
            logger.error("a management request failed", exc_info=error)
            return HTTPStatus.INTERNAL_SERVER_ERROR, f"the member failed: {error!r}"


def _message(request: proton.Message, response: Response, description: str) -> proton.Message:
    correlation = request.correlation_id if request.correlation_id is not None else request.id
    properties = {"statusCode": proton.int32(response.status), "statusDescription": description}
    return proton.Message(
        address=request.reply_to,
        correlation_id=correlation,
        properties={**properties, **response.properties},
        body=response.body,
    )
