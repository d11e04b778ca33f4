"""Client of the management node: connects to one given member as the cluster-admin.

Rules
-----
* The client connects to no other member: no failover, no redirect.  A command reaches the member that it
  names, or fails.
* Every call has a timeout.  If the member cannot be reached, does not answer or drops the connection, the
  call raises ``MemberUnreachableError``; if the member refuses, ``MemberRefusedError``.
* The password is never revealed to a listener that is no member (``amqp.password_mechanisms``).

Source: AMQP Management 1.0, working draft 16, section 2.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import proton

from broker_stub.amqp.conditions import NOT_ALLOWED, UNAUTHORIZED_ACCESS
from broker_stub.amqp.node_names import MANAGEMENT, MEMBER_TYPE
from broker_stub.amqp.password_mechanisms import is_verified_by_ca, no_mechanism_text, password_mechanisms
from broker_stub.election.roles import Role
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.seed import Credentials
from haclient.engine import codec
from haclient.engine.links import DeliveryPointer, ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.settings import Settings
from haclient.outcome import Outcome
from haclient.printable.text import printable

# Management runs on the same machine or in the same network; a slower member has a problem.
DEFAULT_TIMEOUT = 5.0
_OK = range(200, 300)
# Maximum rows that a member returns for a QUERY.
_PAGE = 500
_MAX_RETREATS = 100
# Ten times a member's default number of queues; each row takes a kilobyte of memory.
_MOST_ROWS = 1_000_000
# Attributes that identify an object of any type.
_KEY = ("name", "identity", "exchange", "queue", "key", "link")


class AdminError(Exception):
    """A member could not be managed."""

    def __str__(self) -> str:
        """Return the text as one printable line, since the member sent parts of it."""
        return printable(super().__str__())


class MemberUnreachableError(AdminError):
    """The member cannot be reached or does not answer."""


class MemberRefusedError(AdminError):
    """The member refused the request.

    :param status: the response's status code; 403 if the member refused the connection.
    """

    def __init__(self, description: str, status: int = 403) -> None:
        super().__init__(description)
        self.status = status


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """The status that a member reports; ``facts`` has all fields."""

    name: str
    role: str
    generation: int
    primary: str | None
    connections: int
    facts: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, facts: dict[str, Any]) -> MemberStatus:
        """Read a status answer."""
        return cls(
            facts["name"], facts["role"], facts["generation"], facts["primary"], facts["connections"], facts
        )

    @property
    def serves(self) -> bool:
        """Return whether the member admits clients."""
        return Role(self.role).serves

    @property
    def warning(self) -> str:
        """Return the member's warning about messages that a forced promotion may have lost; else empty."""
        return str(self.facts.get("warning") or "")


class AdminClient:
    """A connection to one member's management node, opened by ``await AdminClient.connect(...)``."""

    def __init__(self, address: Endpoint, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._engine: Engine | None = None
        self._requests: SenderLink | None = None
        self._reply_to = ""
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._pending: dict[Any, asyncio.Future[proton.Message]] = {}
        self._request_ids = itertools.count(1)

    @classmethod
    async def connect(
        cls,
        address: Endpoint,
        credentials: Credentials,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        connect_timeout: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> AdminClient:
        """Connect to a member.

        :param credentials: the cluster-admin's.
        :param timeout: seconds for the connection, and for each call.
        :param connect_timeout: seconds for the connection, if different from ``timeout``.
        :param tls: used if the address has TLS; ``None`` trusts the system's authorities, and excludes PLAIN.
        :raises MemberUnreachableError: if the member cannot be reached in time.
        :raises MemberRefusedError: if the member refuses the connection.
        """
        client = cls(address, timeout)
        limit = timeout if connect_timeout is None else connect_timeout
        try:
            async with asyncio.timeout(limit):
                await client._open(credentials, tls)
        except TimeoutError:
            client.abort()
            raise MemberUnreachableError(f"{address}: no answer within {limit:g} s") from None
        except OSError as error:
            raise MemberUnreachableError(f"{address}: {_error_text(error)}") from error
        except BaseException:
            client.abort()
            raise
        return client

    async def _open(self, credentials: Credentials, tls: ssl.SSLContext | None) -> None:
        settings = Settings(
            container_id=f"haclient-admin/{credentials.user}",
            hostname=self.address.host,
            user=credentials.user,
            password=credentials.password,
            mechanisms=password_mechanisms(verified_by_ca=self.address.tls and is_verified_by_ca(tls)),
        )
        context = (tls or ssl.create_default_context()) if self.address.tls else None
        _socket, engine = await self._loop.create_connection(
            lambda: Engine(self, settings, self._loop), self.address.host, self.address.port, ssl=context
        )
        self._engine = engine
        engine.open()
        engine.begin()
        await self._ready

    # -- requests -------------------------------------------------------------------------------

    async def call(
        self, operation: str, *, kind: str = MEMBER_TYPE, name: str = "self", **arguments: Any
    ) -> Any:
        """Send one request and return the body of the response.

        :raises MemberRefusedError: if the status is not 2xx.
        :raises MemberUnreachableError: if the member does not answer in time.
        """
        if self._requests is None or self._requests.dead:
            raise MemberUnreachableError(f"{self.address}: the connection has ended")
        request_id = next(self._request_ids)
        request = proton.Message(
            reply_to=self._reply_to,
            correlation_id=proton.ulong(request_id),
            properties={"operation": operation, "type": kind, "name": name},
            body=arguments,
        )
        answer = self._pending[request_id] = self._loop.create_future()
        self._requests.send(bytes(request.encode()), None, settled=True)
        try:
            async with asyncio.timeout(self._timeout):
                response = await answer
        except TimeoutError:
            raise MemberUnreachableError(f"{self.address}: no answer within {self._timeout:g} s") from None
        finally:
            del self._pending[request_id]
        properties = response.properties or {}
        status = int(properties.get("statusCode", 0))
        if status not in _OK:
            raise MemberRefusedError(str(properties.get("statusDescription", "")), status)
        return response.body

    async def status(self) -> MemberStatus:
        """Read the member's status."""
        return MemberStatus.of(await self.call("READ"))

    async def promote(self, *, at_least: int = 0, force: bool = False) -> MemberStatus:
        """Make the member the primary, in a generation not below ``at_least``.

        :param force: promote the member even if its store lacks messages; see ``warning`` of the result.
        """
        return MemberStatus.of(await self.call("PROMOTE", generation=at_least, force=force))

    async def demote(self, primary: Endpoint | None = None) -> MemberStatus:
        """Make the member passive; it redirects its clients to ``primary`` if that is given."""
        return MemberStatus.of(await self.call("DEMOTE", primary=None if primary is None else str(primary)))

    async def check_arbiter(self) -> MemberStatus:
        """Make a primary read the arbiter now; it steps down if another member was made primary."""
        return MemberStatus.of(await self.call("CHECK-ARBITER"))

    async def set_primary(self, primary: Endpoint | None, *, generation: int) -> MemberStatus:
        """Send a passive member the address of the primary."""
        where = None if primary is None else str(primary)
        return MemberStatus.of(await self.call("SET-PRIMARY", primary=where, generation=generation))

    async def set_members(self, members: Iterable[Endpoint], broker_url: str | None = None) -> MemberStatus:
        """Send a member the addresses of the cluster's members.

        :param broker_url: new URL at which members find each other; ``None`` keeps the old one.
        """
        given: dict[str, Any] = {"members": [str(member) for member in members]}
        if broker_url is not None:  # older members refuse unknown arguments
            given["broker_url"] = broker_url
        return MemberStatus.of(await self.call("UPDATE", **given))

    async def create(self, kind: str, name: str, **attributes: Any) -> dict[str, Any]:
        """Create a queue, an exchange or a binding; return its attributes."""
        facts: dict[str, Any] = await self.call("CREATE", kind=kind, name=name, **attributes)
        return facts

    async def update(self, kind: str, name: str, **attributes: Any) -> dict[str, Any]:
        """Change the changeable attributes of a queue or an exchange; return all of them."""
        facts: dict[str, Any] = await self.call("UPDATE", kind=kind, name=name, **attributes)
        return facts

    async def delete(self, kind: str, name: str, **attributes: Any) -> None:
        """Delete a queue, an exchange or a binding."""
        await self.call("DELETE", kind=kind, name=name, **attributes)

    async def query(self, kind: str) -> list[dict[str, Any]]:
        """List every queue, exchange or binding with all its attributes.

        The rows are read in pages; each page begins with the last row of the page before.  If it does not,
        earlier rows were deleted meanwhile, and an earlier page is read again.  An object that exists during
        the whole query is listed exactly once.

        :raises MemberRefusedError: if rows are deleted faster than pages are read, or there are more than a
            million rows.
        """
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        offset = retreats = 0
        while True:
            page = await self._page(kind, offset)
            if offset == 0 or (page and _key(page[0]) in rows):
                rows.update((_key(row), row) for row in page)
                if len(page) <= 1:
                    return list(rows.values())
                offset += len(page) - 1
                if offset >= _MOST_ROWS:
                    raise MemberRefusedError(f"{self.address}: more than {_MOST_ROWS:,} rows of {kind}")
            elif retreats < _MAX_RETREATS:
                retreats += 1
                offset = max(0, offset - _PAGE)
            else:
                raise MemberRefusedError(f"{self.address}: the list of {kind} changes faster than it is read")

    async def _page(self, kind: str, offset: int) -> list[dict[str, Any]]:
        answer = await self.call("QUERY", kind=kind, offset=offset, count=_PAGE)
        return [dict(zip(answer["attributeNames"], row, strict=True)) for row in answer["results"]]

    # -- the end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the connection; drop it if the member does not answer within a second."""
        if self._engine is None or self._engine.close_reason is not None:
            return
        self._engine.close()
        try:
            async with asyncio.timeout(1.0):
                await asyncio.shield(self._ended)
        except TimeoutError:
            self.abort()
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Drop the connection."""
        if self._engine is not None:
            self._engine.abort()
        self._fail(MemberUnreachableError(f"{self.address}: aborted"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _fail(self, error: AdminError) -> None:
        futures: tuple[asyncio.Future[Any], ...] = (self._ready, *self._pending.values())
        for future in futures:
            if not future.done():
                future.set_exception(error)
                # If no caller awaits it, asyncio must not warn about it.
                future.exception()

    # -- for the engine -------------------------------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """Do nothing: the member sent its Open."""

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Attach a link for the responses."""
        link = engine.receiver(session, "responses", self)
        link.endpoint.source.dynamic = True
        engine.attach(link)

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Refuse the link: members attach no links to an admin."""
        engine.refuse(link, proton.Condition(NOT_ALLOWED, "not a broker"))

    def link_opened(self, link: SenderLink | ReceiverLink) -> None:
        """Attach the link for requests when the member has attached the link for responses."""
        engine = self._engine
        if isinstance(link, ReceiverLink) and engine is not None:
            self._reply_to = link.endpoint.remote_source.address or ""
            link.grant(100)
            requests = engine.sender(link.endpoint.session, "requests", self)
            requests.endpoint.target.address = MANAGEMENT
            engine.attach(requests)

    def credit_given(self, link: SenderLink) -> None:
        """End the setup: requests may be sent."""
        self._requests = link
        if not self._ready.done():
            self._ready.set_result(None)

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Pass a response to the call that waits for it."""
        if delivery is not None:
            link.settle(delivery)
        link.grant(1)
        response = codec.decode(data)
        answer = self._pending.get(response.correlation_id)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def settled(self, link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """Do nothing: requests are sent settled."""

    def link_closed(self, link: SenderLink | ReceiverLink, condition: proton.Condition | None) -> None:
        """Fail all calls: the member refused or detached a link."""
        self._fail(MemberRefusedError(_close_text(self.address, condition)))

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Fail all calls if the member closes the connection with an error."""
        if condition is not None:
            self._fail(MemberRefusedError(_close_text(self.address, condition)))

    def writable_again(self, engine: Engine) -> None:
        """Do nothing: requests are few and small."""

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """Fail all calls: the connection has ended."""
        if reason.condition is not None and reason.condition.name == UNAUTHORIZED_ACCESS:
            text = str(reason)
            sasl = engine.incoming.client_sasl
            if sasl is not None and sasl.mechanism is None:
                text = no_mechanism_text(sasl.offered)
            self._fail(MemberRefusedError(f"{self.address}: {text}"))
        else:
            self._fail(MemberUnreachableError(f"{self.address}: {reason}"))
        if not self._ended.done():
            self._ended.set_result(None)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in _KEY)


def _error_text(error: OSError) -> str:
    # asyncio's text repeats the socket address; the texts of TLS and DNS state the reason.
    return os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else str(error)


def _close_text(address: Endpoint, condition: proton.Condition | None) -> str:
    if condition is None:
        return f"{address}: closed without a reason"
    return f"{address}: {condition.name}: {condition.description}"
