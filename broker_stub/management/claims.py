"""The node ``$cbs``: a client that has logged in without a name puts a token, and gets the token's name.

Rules
-----
* A client may put another token at any time, which replaces the one before: so it renews its log-in.
* It may not change its name: its links have been attached under it.

Sources: OASIS, "AMQP Claims-based Security 1.0"; Microsoft, "AMQP 1.0 in Azure Service Bus and Event Hubs
protocol guide", section "Claims-based authorization": its names of properties and status codes.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

import proton

from broker_stub.amqp.conditions import UNAUTHORIZED_ACCESS
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.queue import Queue
from haclient.engine import codec
from haclient.engine.amqp_values.decode import UndecodableMessage
from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.sasl.claims import MOST_BYTES
from haclient.engine.sasl.users import RefusedToken, TokenOwner, Tokens
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.management.claims")

NODE = "$cbs"
_OPERATION = "put-token"
# A client that is not logged in yet must not fill the memory.
_LONGEST_ID, _MOST_RESPONSES = 256, 100


def check_node(link: SenderLink | ReceiverLink) -> None:
    """Check that a client without a name attaches to this node.

    :raises AddressRefusedError: if it does not.
    """
    endpoint = link.endpoint
    remote = endpoint.remote_target if isinstance(link, ReceiverLink) else endpoint.remote_source
    if remote.dynamic or remote.address != NODE:
        raise AddressRefusedError(UNAUTHORIZED_ACCESS, f"put a token into {NODE} first")


class Claimant(Protocol):
    """The connection whose client puts tokens."""

    user: str | None

    def claimed(self, owner: TokenOwner) -> str:
        """Take the identity in a token; return why it is refused, or nothing."""


class ClaimsNode:
    """The node for one connection (a ``RequestHandler``).

    :param responses: returns the queue from which the client receives the responses, if there is one.
    """

    __slots__ = ("_client", "_responses", "_tokens")

    def __init__(self, client: Claimant, tokens: Tokens, responses: Callable[[], Queue | None]) -> None:
        self._client = client
        self._tokens = tokens
        self._responses = responses

    def request(self, data: bytes) -> None:
        """Answer one encoded request."""
        responses = self._responses()
        if responses is None or responses.depth >= _MOST_RESPONSES:
            logger.info("a request to %s dropped: the client takes no responses from it", NODE)
            return
        try:
            message = codec.decode(data)
        except UndecodableMessage as error:
            logger.info("a request to %s dropped: %s", NODE, error)
            return
        if len(repr(message.id)) > _LONGEST_ID or len(repr(message.correlation_id)) > _LONGEST_ID:
            logger.info("a request to %s dropped: its id is too long", NODE)
            return
        status, description = self._put(message)
        properties = {"status-code": proton.int32(status), "status-description": description}
        correlation = message.correlation_id if message.correlation_id is not None else message.id
        response = proton.Message(correlation_id=correlation, properties=properties)
        responses.enqueue(bytes(response.encode()), _ignore_settlement, None)

    def _put(self, message: proton.Message) -> tuple[HTTPStatus, str]:
        properties: dict[str, object] = message.properties or {}
        if properties.get("operation") != _OPERATION or not isinstance(message.body, str):
            return HTTPStatus.BAD_REQUEST, f"the operation {_OPERATION} with a token as its body is expected"
        if len(message.body) > MOST_BYTES:
            return HTTPStatus.BAD_REQUEST, f"the token is longer than {MOST_BYTES} characters"
        try:
            owner = self._tokens.owner(message.body)
        except RefusedToken as refused:
            logger.info("%s: a token was refused: %s", NODE, refused)
            status = HTTPStatus.SERVICE_UNAVAILABLE if refused.is_temporary else HTTPStatus.UNAUTHORIZED
            return status, str(refused)
        if self._client.user not in (None, owner.user):
            return HTTPStatus.UNAUTHORIZED, "the token is of another user than the one before"
        if refusal := self._client.claimed(owner):
            return HTTPStatus.UNAUTHORIZED, refusal
        return HTTPStatus.ACCEPTED, HTTPStatus.ACCEPTED.phrase


def _ignore_settlement(_token: object) -> None:
    """Ignore the settlement: a response has no sender that waits for it."""
