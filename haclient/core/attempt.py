"""One attempt: one try at one endpoint, from TCP connect to a usable session.

Usable means: the Open came without ``amqp:connection-establishment-failed``, and the Begin was
answered (DESIGN section 4, rule 3).  An attempt reports what it comes to and nothing else: the TCP
connection stands, Open came, the member parks it, the session is usable, or how it failed.  Its
deadline is the search's business; ``cancel`` ends it at any point.

Parked (DESIGN section 6): the Open offers ``haclient:park``, and the Begin is answered when the member
serves and this client's turn has come.  What that Open says about the generation is old by then.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import proton

from haclient.cluster_url.authority import is_address
from haclient.cluster_url.endpoint import Endpoint
from haclient.core import failures
from haclient.discovery.evidence import Failure, FailureReason
from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.protocol import Ending, Engine, EngineOwner
from haclient.engine.settings import PARK, Settings
from haclient.resolver.resolve import ResolutionError, Resolver

logger = logging.getLogger("haclient")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to reach one endpoint: what the factory decided for it just before dialling.

    :param fresh: the credentials come from a callable and may differ next time.
    :param refusal: why not to dial at all (the credentials were refused here already).
    :param refused: to be called when the member refuses these credentials, with the mechanism.
    """

    settings: Settings
    tls: ssl.SSLContext | None = None
    fresh: bool = False
    refusal: Failure | None = None
    refused: Callable[[str | None], None] = lambda _: None


Planner = Callable[[Endpoint], Awaitable[Plan]]


@dataclass(frozen=True, slots=True)
class Reports:
    """Whom an attempt tells.  Each is called on the event loop and must not block."""

    tcp_connected: Callable[[int], None]
    opened: Callable[[int], None]
    parked: Callable[[int], None]
    usable: Callable[[int], None]
    missed: Callable[[int, Failure], None]


class Attempt:
    """A try at one endpoint.  It owns its engine until somebody adopts it.

    :param park: whether to ask the member to park it.
    :ivar parked: whether the member did.
    :ivar begun: the session that was asked for; ``session``: the same, when the Begin was answered.
    """

    def __init__(
        self,
        number: int,
        endpoint: Endpoint,
        planner: Planner,
        resolver: Resolver,
        reports: Reports,
        *,
        park: bool = False,
    ) -> None:
        self.number = number
        self.endpoint = endpoint
        self.parked = False
        self.engine: Engine | None = None
        self.begun: proton.Session | None = None
        self.session: proton.Session | None = None
        self.plan: Plan | None = None
        self._planner = planner
        self._resolver = resolver
        self._reports = reports
        self._park = park
        self._opened = False
        self._over = False

    async def run(self) -> None:
        """Dial and open.  Returns when the bytes flow; the reports say how it goes on."""
        loop = asyncio.get_running_loop()
        try:
            self.plan = plan = await self._make_plan()
            if plan.refusal is not None:
                self._miss(plan.refusal)
                return
            connected = await self._connect_tcp(loop)
            if connected is not None:
                await self._connect_amqp(loop, plan, connected)
        except asyncio.CancelledError:
            self.cancel()
            raise
        except ResolutionError as error:
            self._miss(Failure(kind=FailureReason.UNRESOLVED, detail=str(error)))
        except (OSError, ssl.SSLError) as error:
            self._miss(failures.from_socket_error(error))
        except Exception as error:  # a defect of ours must not leave the search waiting
            logger.exception("the attempt at %s failed", self.endpoint)
            self._miss(Failure(kind=FailureReason.ENDED, detail=f"internal error: {type(error).__name__}"))

    async def _make_plan(self) -> Plan:
        plan = await self._planner(self.endpoint)
        if not self._park:
            return plan
        asked = (*plan.settings.desired_capabilities, PARK)
        return replace(plan, settings=replace(plan.settings, desired_capabilities=asked))

    def hand_over(self, number: int, reports: Reports) -> None:
        """From now on somebody else is told, and knows it by another number."""
        self.number, self._reports = number, reports

    def cancel(self) -> None:
        """Drop whatever there is, without a word to the peer."""
        self._over = True
        if self.engine is not None:
            self.engine.abort()

    def adopt(self, owner: EngineOwner) -> tuple[Engine, proton.Session]:
        """Hand the usable connection over."""
        assert self.engine is not None
        assert self.session is not None
        self._over = True
        self.engine.owner = owner
        return self.engine, self.session

    # -- sockets ------------------------------------------------------------------------------

    async def _connect_tcp(self, loop: asyncio.AbstractEventLoop) -> socket.socket | None:
        error: OSError | None = None
        for address in await self._addresses():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(connection, (address, self.endpoint.port))
            except OSError as failure:
                connection.close()
                error = failure
            except BaseException:
                connection.close()
                raise
            else:
                self._reports.tcp_connected(self.number)
                return connection
        if error is not None:
            raise error
        return None

    async def _addresses(self) -> tuple[str, ...]:
        try:
            ipaddress.ip_address(self.endpoint.host)
        except ValueError:
            return tuple(found.host for found in await self._resolver.resolve(self.endpoint))
        return (self.endpoint.host,)

    async def _connect_amqp(
        self, loop: asyncio.AbstractEventLoop, plan: Plan, connection: socket.socket
    ) -> None:
        def make() -> Engine:
            return Engine(self, plan.settings, loop)

        try:
            _, self.engine = await loop.create_connection(
                make,
                sock=connection,
                ssl=plan.tls,
                server_hostname=plan.settings.tls_name if plan.tls is not None else None,
            )
        except BaseException:
            connection.close()
            raise
        self.engine.open()
        self.begun = self.engine.begin()

    # -- the engine's side --------------------------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """Open came; what counts is the Begin, or the Close that is on its way."""
        self._opened = True
        if self._over:
            return
        self._reports.opened(self.number)
        failed = engine.peer_properties.get(failures.ESTABLISHMENT_FAILED)
        offered = engine.connection.remote_offered_capabilities or ()
        if self._park and not failed and PARK in map(str, offered):
            self.parked = True
            self._reports.parked(self.number)

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Begin answered."""
        if not self._over and not engine.peer_properties.get(failures.ESTABLISHMENT_FAILED):
            self.session = session
            self._reports.usable(self.number)

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """A peer that attaches links on its own gets them refused."""
        engine.refuse(link, proton.Condition("amqp:not-allowed", "this client opens its own links"))

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Close came.  The peer may leave the socket open for ever, so do not wait for it."""
        self._miss(failures.from_close(condition, self.endpoint))
        engine.abort()

    def writable_again(self, engine: Engine) -> None:
        """Nothing is waiting to be written during an attempt."""

    def ended(self, engine: Engine, ending: Ending) -> None:
        """The connection broke before anybody adopted it."""
        if ending.error is not None:
            self._miss(failures.from_socket_error(ending.error))
            return
        plan = self.plan
        assert plan is not None
        miss = failures.from_engine_error(
            ending.condition, engine.transport, fresh=plan.fresh, opened=self._opened
        )
        if miss.kind is FailureReason.TLS_VERIFICATION and is_address(plan.settings.tls_name or ""):
            # This was proton's TLS, see engine.tls; asyncio's fails while it connects.
            hint = "with EXTERNAL only names are verified, no addresses: set tls_server_name"
            miss = replace(miss, detail=f"{miss.detail}; {hint}")
        if plan.fresh and failures.credentials_refused(engine.transport):
            plan.refused(miss.mechanism)
        self._miss(miss)

    def _miss(self, miss: Failure) -> None:
        if not self._over:
            self._over = True
            self._reports.missed(self.number, miss)
