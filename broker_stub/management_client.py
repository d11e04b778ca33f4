"""The client side of management: talks to one given member as the cluster-admin.

Rules
-----
* It never goes anywhere else: no failover, no redirect.  Whoever manages a member must reach
  that member or learn that it cannot.
* Everything has a timeout.  A member that cannot be reached, does not answer or breaks off
  raises ``MemberUnreachableError``; one that answers with a refusal, ``MemberRefusedError``.

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

from broker_stub.address import Address
from broker_stub.admission.auth import DEFAULT_ADMIN, MANAGEMENT, PASSWORD_MECHANISMS
from broker_stub.election.roles import Role
from broker_stub.management import MEMBER_TYPE
from haclient.engine.links import DeliveryPointer, ReceiverLink, SenderLink
from haclient.engine.protocol import Ending, Engine
from haclient.engine.settings import Settings
from haclient.outcome import Outcome

# Management is on the same machine or the next one; a member that takes longer is in trouble.
DEFAULT_TIMEOUT = 5.0
_OK = range(200, 300)


class AdminError(Exception):
    """A member could not be managed."""


class MemberUnreachableError(AdminError):
    """Nobody there, or no answer."""


class MemberRefusedError(AdminError):
    """The member answered, and said no.

    :param status: the response's status code; 403 where not even the connection was allowed.
    """

    def __init__(self, description: str, status: int = 403) -> None:
        super().__init__(description)
        self.status = status


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who manages."""

    password: str = field(repr=False)
    user: str = DEFAULT_ADMIN


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member said of itself; ``facts`` has all of it."""

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
        """Whether it lets clients in."""
        return Role(self.role).serves

    @property
    def warning(self) -> str:
        """What a forced promotion may have lost; empty for nothing."""
        return str(self.facts.get("warning") or "")


class AdminClient:
    """A connection to one member's management node; ``await AdminClient.connect(...)`` makes it."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._engine: Engine | None = None
        self._requests: SenderLink | None = None
        self._reply_to = ""
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._pending: dict[Any, asyncio.Future[proton.Message]] = {}
        self._numbers = itertools.count(1)

    @classmethod
    async def connect(
        cls,
        address: Address,
        credentials: Credentials,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        tls: ssl.SSLContext | None = None,
    ) -> AdminClient:
        """Connect to a member.

        :param timeout: seconds for the connection, and for each call.
        :param tls: for an address with TLS; ``None`` trusts the system's authorities.
        :raises MemberUnreachableError, MemberRefusedError: see there.
        """
        client = cls(address, timeout)
        try:
            async with asyncio.timeout(timeout):
                await client._open(credentials, tls)
        except TimeoutError:
            client.abort()
            raise MemberUnreachableError(f"{address}: no answer within {timeout:g} s") from None
        except OSError as error:
            raise MemberUnreachableError(f"{address}: {_why(error)}") from error
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
            mechanisms=PASSWORD_MECHANISMS,
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

        :raises MemberRefusedError: when the status is not 2xx.
        :raises MemberUnreachableError: when the member does not answer in time.
        """
        if self._requests is None or self._requests.dead:
            raise MemberUnreachableError(f"{self.address}: the connection is gone")
        number = next(self._numbers)
        request = proton.Message(
            reply_to=self._reply_to,
            correlation_id=proton.ulong(number),
            properties={"operation": operation, "type": kind, "name": name},
            body=arguments,
        )
        answer = self._pending[number] = self._loop.create_future()
        self._requests.send(bytes(request.encode()), None, settled=True)
        try:
            async with asyncio.timeout(self._timeout):
                response = await answer
        except TimeoutError:
            raise MemberUnreachableError(f"{self.address}: no answer within {self._timeout:g} s") from None
        finally:
            del self._pending[number]
        properties = response.properties or {}
        status = int(properties.get("statusCode", 0))
        if status not in _OK:
            raise MemberRefusedError(str(properties.get("statusDescription", "")), status)
        return response.body

    async def status(self) -> MemberStatus:
        """What the member is and has."""
        return MemberStatus.of(await self.call("READ"))

    async def promote(self, *, at_least: int = 0, force: bool = False) -> MemberStatus:
        """Make the member the primary, in a generation not below ``at_least``.

        :param force: whatever its store lacks; the ``warning`` tells what that may be.
        """
        return MemberStatus.of(await self.call("PROMOTE", generation=at_least, force=force))

    async def demote(self, primary: Address | None = None) -> MemberStatus:
        """Make the member passive; its clients are sent to ``primary`` when that is given."""
        return MemberStatus.of(await self.call("DEMOTE", primary=None if primary is None else str(primary)))

    async def set_primary(self, primary: Address | None, *, generation: int) -> MemberStatus:
        """Tell a passive member where the primary is."""
        where = None if primary is None else str(primary)
        return MemberStatus.of(await self.call("SET-PRIMARY", primary=where, generation=generation))

    async def set_members(self, members: Iterable[Address]) -> MemberStatus:
        """Tell a member where the members of the cluster are."""
        return MemberStatus.of(await self.call("UPDATE", members=[str(member) for member in members]))

    async def create(self, kind: str, name: str, **attributes: Any) -> dict[str, Any]:
        """Make a queue, an exchange or a binding; its attributes."""
        facts: dict[str, Any] = await self.call("CREATE", kind=kind, name=name, **attributes)
        return facts

    async def update(self, kind: str, name: str, **attributes: Any) -> dict[str, Any]:
        """Change what can be changed of a queue or an exchange; its attributes."""
        facts: dict[str, Any] = await self.call("UPDATE", kind=kind, name=name, **attributes)
        return facts

    async def delete(self, kind: str, name: str, **attributes: Any) -> None:
        """Delete a queue, an exchange or a binding."""
        await self.call("DELETE", kind=kind, name=name, **attributes)

    async def query(self, kind: str) -> list[dict[str, Any]]:
        """Every queue, exchange or binding with all its attributes."""
        answer = await self.call("QUERY", kind=kind)
        return [dict(zip(answer["attributeNames"], row, strict=True)) for row in answer["results"]]

    async def stop_member(self) -> None:
        """Have the member stop in order."""
        await self.call("STOP")

    # -- the end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Say goodbye; a member that does not answer within a second is left without."""
        if self._engine is None or self._engine.ending is not None:
            return
        self._engine.close()
        try:
            async with asyncio.timeout(1.0):
                await asyncio.shield(self._gone)
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Drop the connection."""
        if self._engine is not None:
            self._engine.abort()
        self._fail(MemberUnreachableError(f"{self.address}: given up"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _fail(self, error: AdminError) -> None:
        futures: tuple[asyncio.Future[Any], ...] = (self._ready, *self._pending.values())
        for future in futures:
            if not future.done():
                future.set_exception(error)
                # Whoever waits gets it; when nobody does, that is not worth a warning.
                future.exception()

    # -- for the engine -------------------------------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """The member's Open came."""

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """The session is there: attach a link for the responses."""
        link = engine.receiver(session, "responses", self)
        link.endpoint.source.dynamic = True
        engine.attach(link)

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Members attach no links to an admin."""
        engine.refuse(link, proton.Condition("amqp:not-allowed", "not a broker"))

    def link_opened(self, link: SenderLink | ReceiverLink) -> None:
        """A link was answered: responses first, then requests."""
        engine = self._engine
        if isinstance(link, ReceiverLink) and engine is not None:
            self._reply_to = link.endpoint.remote_source.address or ""
            link.grant(100)
            requests = engine.sender(link.endpoint.session, "requests", self)
            requests.endpoint.target.address = MANAGEMENT
            engine.attach(requests)

    def credit_given(self, link: SenderLink) -> None:
        """Requests may be sent."""
        self._requests = link
        if not self._ready.done():
            self._ready.set_result(None)

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """A response came."""
        if delivery is not None:
            link.settle(delivery)
        link.grant(1)
        response = proton.Message()
        response.decode(data)
        answer = self._pending.get(response.correlation_id)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def settled(self, link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """Requests are sent settled."""

    def link_closed(self, link: SenderLink | ReceiverLink, condition: proton.Condition | None) -> None:
        """The member refused a link, or dropped it."""
        self._fail(MemberRefusedError(_words(self.address, condition)))

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """The member closes the connection."""
        if condition is not None:
            self._fail(MemberRefusedError(_words(self.address, condition)))

    def writable_again(self, engine: Engine) -> None:
        """Requests are few and small."""

    def ended(self, engine: Engine, ending: Ending) -> None:
        """The connection is over."""
        if ending.condition is not None and ending.condition.name == "amqp:unauthorized-access":
            self._fail(MemberRefusedError(f"{self.address}: {ending}"))
        else:
            self._fail(MemberUnreachableError(f"{self.address}: {ending}"))
        if not self._gone.done():
            self._gone.set_result(None)


def _why(error: OSError) -> str:
    # asyncio's own words name the socket address again; those of TLS and DNS say what was wrong.
    return os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else str(error)


def _words(address: Address, condition: proton.Condition | None) -> str:
    if condition is None:
        return f"{address}: closed without a reason"
    return f"{address}: {condition.name}: {condition.description}"
