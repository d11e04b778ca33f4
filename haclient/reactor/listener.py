"""``Container.listen``: accepts peers that connect to this container.

An accepted connection is plain: it ends with its socket.  Its TLS is Python's (``ssl_domain``).
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import proton
from proton import Url

from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.settings import SaslServer, Settings
from haclient.printable.log import get_logger
from haclient.reactor.endpoints.binding import Binding
from haclient.reactor.kept import Kept
from haclient.reactor.ssl_domain import SSLDomain, for_listening

if TYPE_CHECKING:
    from haclient.reactor.loop import Reactor

logger = get_logger("haclient")

# Connections that may wait to be accepted: proton's ten are too few after a failover of the peers.
_BACKLOG = 128


class Accepted:
    """The owner of an engine whose events a binding handles: does nothing."""

    def opened(self, engine: Engine) -> None:
        """Do nothing: the handlers saw the event."""

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Do nothing: the handlers saw the event."""

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Do nothing: the handlers saw the event."""

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Do nothing: the handlers saw the event."""

    def writable_again(self, engine: Engine) -> None:
        """Do nothing: the engine continues by itself."""

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """Do nothing: the engine reports the end to the binding."""


class Acceptor(proton.Handler, Kept):
    """A socket that listens, until ``close``."""

    def __init__(self, container: Reactor, host: str, port: int, handler: Any = None) -> None:
        self._container = container
        self._handler = handler
        self._domain: SSLDomain | None = None
        self._socket = _listen(host, port)
        self._server: asyncio.Server | None = None
        self._closed = False
        container.hold(self)
        container.spawn(self._serve())

    def set_ssl_domain(self, ssl_domain: SSLDomain) -> None:
        """Use TLS for accepted connections.

        :raises TypeError: for a domain that only proton can use; the socket is closed then.
        :raises OSError: if a file of the domain can no longer be read; the socket is closed then.
        """
        try:
            for_listening(ssl_domain).context()
        except (TypeError, OSError):
            self.close()
            raise
        self._domain = ssl_domain

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port it listens on."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop listening.  Accepted connections continue."""
        if not self._closed:
            self._closed = True
            if self._server is not None:
                self._server.close()
            self._socket.close()
            self._container.release(self)

    def let_go(self) -> None:
        """Stop listening."""
        self.close()

    async def _serve(self) -> None:
        if self._closed:
            return
        self._server = await self._container.loop.create_server(self._accept, sock=self._socket)

    def _accept(self) -> Engine:
        container = self._container
        tls = None if self._domain is None else for_listening(self._domain)
        settings = Settings(
            container_id=container.container_id,
            heartbeat=0,
            sasl_server=SaslServer(is_protons=True),
            tls_context=None if tls is None else tls.context(),
            tls_optional=tls is not None and tls.optional,
        )
        engine = _ServerEngine(Accepted(), settings, container.loop)
        binding = Binding(container, accepted=engine)
        connection = binding.connection
        connection._acceptor = self
        if self._handler is not None:
            connection.handler = self._handler
        container.hold(binding)
        return engine


class _ServerEngine(Engine):
    """An engine that sets the peer's address on its connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        logger.info("accepted a connection from %s", self.peer)
        if isinstance(self.event_handler, Binding) and name is not None:
            self.event_handler.connection.url = Url(host=str(name[0]), port=int(name[1]))


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, of the family of the first address that can be bound.

    :raises OSError: when none can be bound.
    """
    failure: OSError | None = None
    flags = socket.AI_PASSIVE
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=flags
    ):
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError as error:
            listening.close()
            failure = error
        else:
            return listening
    raise failure or OSError(f"nowhere to listen: {host}:{port}")
