"""Sockets that peers listen on: loopback, a separate address for each, ephemeral ports."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from haclient.engine.owner import EngineOwner
from haclient.engine.protocol import Engine
from haclient.engine.settings import SaslServer, Settings

ANONYMOUS = SaslServer()
# Each process starts at another place in 127.0.0.0/8, so that two test runs do not collide.
_HOSTS = itertools.count(os.getpid() * 64)
_LOOPBACKS = 254 * 250 * 250
_TURNS = 3  # of the loop, from the accept of a connection until it is made


@dataclass(slots=True)
class Peer:
    """A peer's address and its connections.

    :ivar accepted: when each TCP connection was accepted, in the event loop's seconds.
    :ivar options: URL options that a client needs to reach it.
    :ivar transports: the connections that are open now.
    """

    host: str
    port: int
    accepted: list[float] = field(default_factory=list)
    options: Mapping[str, str] = field(default_factory=dict)
    transports: set[asyncio.Transport] = field(default_factory=set)

    @property
    def address(self) -> str:
        """Return the peer as a member of a cluster URL."""
        return f"{self.host}:{self.port}"


P = TypeVar("P", bound=Peer)


def loopback_host() -> str:
    """Return a loopback address that no other peer of this process has."""
    number = next(_HOSTS) % _LOOPBACKS
    return f"127.{1 + number // 62500 % 254}.{1 + number // 250 % 250}.{1 + number % 250}"


def bound(port: int = 0, host: str | None = None) -> socket.socket:
    """Return a TCP socket bound to a loopback address, which does not listen yet."""
    bound_socket = socket.socket()
    bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound_socket.bind((host or loopback_host(), port))
    return bound_socket


class Located(Protocol):
    """An object that a cluster URL can list: a peer, a broker, a pair."""

    @property
    def address(self) -> str:
        """Return ``host:port``, or several with commas between."""

    @property
    def options(self) -> Mapping[str, str]:
        """Return the URL options that a client needs to reach it."""


def url(*peers: Located, **options: object) -> str:
    """Return the cluster URL that lists these peers, in this order, with these options."""
    every: dict[str, object] = {}
    for peer in peers:
        every |= peer.options
    every |= options
    query = "&".join(f"{name}={value}" for name, value in every.items())
    return f"amqp://{','.join(peer.address for peer in peers)}/" + (f"?{query}" if query else "")


@asynccontextmanager
async def listening(
    protocol: Callable[[P], asyncio.Protocol],
    make: Callable[[str, int], P] = Peer,  # type: ignore[assignment]
    *,
    port: int = 0,
    host: str | None = None,
) -> AsyncIterator[P]:
    """Start a peer that serves each TCP connection with a new protocol; all end with the context."""
    loop = asyncio.get_running_loop()
    server_socket = bound(port, host)
    peer = make(*server_socket.getsockname())
    server = await loop.create_server(lambda: _Watched(peer, protocol(peer)), sock=server_socket)
    try:
        yield peer
    finally:
        # A closed server leaves a connection open that it has accepted and not made yet (Python 3.11).
        loop.remove_reader(server_socket)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        server.close()
        for transport in tuple(peer.transports):
            transport.abort()
        await asyncio.sleep(0)  # an aborted transport calls ``connection_lost`` in the next turn of the loop
        await server.wait_closed()


class _Watched(asyncio.Protocol):
    """Forwards all calls and counts the peer's connections."""

    def __init__(self, peer: Peer, inner: Any) -> None:
        self._peer = peer
        self._inner = inner
        self._transport: Any = None

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        kept: bool | None = self._inner.eof_received()
        return kept

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._peer.transports.add(transport)
        self._peer.accepted.append(asyncio.get_running_loop().time())
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)
        # Last, so that another thread that sees the change finds the connection fully closed.
        asyncio.get_running_loop().call_soon(self._peer.transports.discard, self._transport)


class PeerEngine(Engine):
    """The server side of one connection, which can also break the rules of AMQP.

    :param hold: never close the socket.
    :param eof_after_sasl: end the stream when SASL is done.
    """

    def __init__(
        self,
        owner: EngineOwner,
        settings: Settings,
        *,
        hold: bool = False,
        eof_after_sasl: bool = False,
    ) -> None:
        super().__init__(owner, settings, asyncio.get_running_loop())
        self.tcp: Any = None
        self._hold = hold
        self._eof_after_sasl = eof_after_sasl

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket, which ``finish`` and ``drop`` need."""
        self.tcp = transport
        super().connection_made(_Held(transport) if self._hold else transport)

    def finish(self) -> None:
        """Send pending output, then end the stream."""
        super().write()
        self.writable = False
        self.tcp.write_eof()

    def drop(self) -> None:
        """Send pending output, then reset the connection."""
        super().write()
        self.abort()

    def write(self) -> None:
        """Send pending output now; with ``eof_after_sasl``, end the stream after the outcome of SASL."""
        super().write()
        if self._eof_after_sasl and self.writable and self._sasl_is_done:
            self.finish()

    @property
    def _sasl_is_done(self) -> bool:
        return self.incoming.login is not None


class _Held(asyncio.Transport):
    """A transport that the engine cannot close."""

    def __init__(self, transport: Any) -> None:
        super().__init__()
        self._transport = transport

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def close(self) -> None:
        """Do nothing, on purpose."""

    def abort(self) -> None:
        """Do nothing, on purpose."""


def settings(**changes: Any) -> Settings:
    """Return the settings of a peer: anonymous, unless a test gives others."""
    return Settings(**{"container_id": "peer", "heartbeat": 0.0, "sasl_server": ANONYMOUS, **changes})
