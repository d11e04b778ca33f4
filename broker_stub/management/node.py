"""The management node: authorizes a request, dispatches it by type, and answers it.

Rule: each command, which is any operation except READ and QUERY, is logged with its client before it is
executed, and again if it fails. The log has the names of arguments, but not their values, which may be
secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import proton

from broker_stub.amqp.conditions import (
    ILLEGAL_STATE,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    UNAUTHORIZED_ACCESS,
)
from broker_stub.amqp.node_names import (
    BINDING_TYPE,
    EXCHANGE_TYPE,
    FOLLOWED_QUEUE_TYPE,
    MEMBER_TYPE,
    QUEUE_TYPE,
)
from broker_stub.election.roles import MoveRefusedError
from broker_stub.management.bindings import BindingOperations
from broker_stub.management.exchanges import ExchangeOperations
from broker_stub.management.managed import Managed
from broker_stub.management.members import MemberOperations
from broker_stub.management.queues import FollowedQueueOperations, QueueOperations
from broker_stub.management.request import (
    Operation,
    Request,
    RequestRefusedError,
    Response,
)
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.store import StoreFailedError
from haclient.engine import codec
from haclient.engine.amqp_values.decode import UndecodableMessage
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.management")

# Characters of a client's text in a log line; a name has up to 1,024.
_MOST_QUOTED = 200
_MOST_ARGUMENTS = 20
_STATUS = {
    NOT_FOUND: HTTPStatus.NOT_FOUND,
    NOT_ALLOWED: HTTPStatus.CONFLICT,
    PRECONDITION_FAILED: HTTPStatus.CONFLICT,
    ILLEGAL_STATE: HTTPStatus.CONFLICT,
    UNAUTHORIZED_ACCESS: HTTPStatus.FORBIDDEN,
}
"""The status of each AMQP condition; 400 for any other."""


class Management:
    """Answers requests about one broker."""

    def __init__(self, broker: Managed) -> None:
        self._addresses = broker.addresses
        self._tasks: set[asyncio.Task[None]] = set()
        self._types: Mapping[str, Mapping[str, Operation]] = {
            MEMBER_TYPE: MemberOperations(broker).operations,
            QUEUE_TYPE: QueueOperations(broker).operations,
            EXCHANGE_TYPE: ExchangeOperations(broker).operations,
            BINDING_TYPE: BindingOperations(broker).operations,
            FOLLOWED_QUEUE_TYPE: FollowedQueueOperations(broker).operations,
        }

    async def answer(self, message: proton.Message, *, admin: bool, by: str) -> proton.Message:
        """Perform the request in a message, and return the response.

        :param admin: true if the cluster-admin sent it.
        :param by: the client, for the log.
        """
        try:
            response = await self._perform(message, admin=admin, by=by)
            description = response.status.phrase
        except Exception as error:  # noqa: BLE001  (the client gets the error; what is not a refusal is logged)
            status, description = _refusal(error)
            response = Response(status=status)
        return _message(message, response, description)

    def start(self, message: proton.Message, *, admin: bool, by: str) -> None:
        """Answer a request in its own task, independently of the connection that sent it."""
        task = asyncio.get_running_loop().create_task(self._respond(message, admin=admin, by=by))
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a management request failed", exc_info=error)

    async def _respond(self, message: proton.Message, *, admin: bool, by: str) -> None:
        """Put the response into the request's reply-to queue."""
        response = await self.answer(message, admin=admin, by=by)
        try:
            queue = self._addresses.queue(message.reply_to)
        except AddressRefusedError as refused:
            logger.info("management response dropped: %s", refused.description)
        else:
            queue.enqueue(_encoded(message, response), _ignore_settlement, None)

    async def _perform(self, message: proton.Message, *, admin: bool, by: str) -> Response:
        if not admin:
            logger.warning("management: a request by %s, who is not the cluster-admin", by)
            raise RequestRefusedError(HTTPStatus.FORBIDDEN, "management is for the cluster-admin")
        request = Request.of(message)
        operation = self._types.get(request.type, {}).get(request.operation)
        if operation is None:
            raise RequestRefusedError(
                HTTPStatus.NOT_IMPLEMENTED, f"no operation {request.operation} on {request.type}"
            )
        if request.operation in ("READ", "QUERY"):
            return await operation(request)
        command = _command(request)
        logger.info("management: %s by %s", command, by)
        try:
            return await operation(request)
        except Exception as error:
            logger.info("management: %s by %s failed: %s", command, by, _quoted(str(error)))
            raise


@dataclass(frozen=True, slots=True)
class ManagementLink:
    """The management node for one client (a ``RequestHandler``).

    :param admin: true if the cluster-admin sends the requests.
    :param by: the client, for the log.
    """

    node: Management
    admin: bool
    by: str

    def request(self, data: bytes) -> None:
        """Answer one encoded request."""
        try:
            message = codec.decode(data)
        except UndecodableMessage as error:
            logger.info("management request dropped: %s", error)
            return
        self.node.start(message, admin=self.admin, by=self.by)


def _command(request: Request) -> str:
    """Format a request for the log; operation and type are known ones."""
    name = request.name or request.identity
    arguments = ", ".join(map(_quoted, sorted(request.arguments)[:_MOST_ARGUMENTS]))
    return " ".join(
        (
            request.operation,
            request.type,
            *((_quoted(name),) if name else ()),
            *((f"with {arguments}",) if arguments else ()),
        )
    )


def _quoted(text: str) -> str:
    """Return a text of the client on one line, of bounded length."""
    return repr(text[:_MOST_QUOTED])


def _ignore_settlement(_token: object) -> None:
    """Ignore the settlement: a response has no sender that waits for it."""


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


def _encoded(request: proton.Message, response: proton.Message) -> bytes:
    """Encode a response; if proton cannot, encode a refusal instead, so that the client does not wait."""
    try:
        return bytes(response.encode())
    except proton.ProtonException as error:
        logger.exception("a management response cannot be encoded")
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        refusal = _message(request, Response(status=status), f"the response cannot be encoded: {error}")
        return bytes(refusal.encode())


def _message(request: proton.Message, response: Response, description: str) -> proton.Message:
    correlation = request.correlation_id if request.correlation_id is not None else request.id
    properties = {"statusCode": proton.int32(response.status), "statusDescription": description}
    return proton.Message(
        address=request.reply_to,
        correlation_id=correlation,
        properties={**properties, **response.properties},
        body=response.body,
    )
