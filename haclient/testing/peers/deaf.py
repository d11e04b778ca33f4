"""The passive behaviours below AMQP: no host, no listener, no AMQP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import Any

import dns.flags
import dns.message
import dns.rcode

from haclient.testing.peers.listening import Peer, bound, listening, loopback_host

# A TCP connect to a broadcast address fails with ENETUNREACH before any packet is sent.  This one belongs to
# the loopback interface, so no packet could leave the machine.
_UNREACHABLE = "127.255.255.255"


@asynccontextmanager
async def refused(_primary: Peer) -> AsyncIterator[Peer]:
    """Bind a port, so that no other process gets it, without listening."""
    with bound() as bound_socket:
        yield Peer(*bound_socket.getsockname())


@asynccontextmanager
async def unreachable(_primary: Peer) -> AsyncIterator[Peer]:
    """Yield an address without a route in the kernel."""
    yield Peer(_UNREACHABLE, 5672)


@asynccontextmanager
async def syn_drop(_primary: Peer | None = None) -> AsyncIterator[Peer]:
    """Fill a port's accept queue: Linux drops every further SYN to it."""
    with ExitStack() as stack:
        full = stack.enter_context(bound())
        full.listen(0)
        filler = stack.enter_context(socket.socket())
        filler.connect(full.getsockname())
        yield Peer(*full.getsockname())


@asynccontextmanager
async def stopped_process(_primary: Peer) -> AsyncIterator[Peer]:
    """Start a process that listens, and stop it: its kernel accepts connections, but no answer follows."""
    with bound() as server:
        server.listen()
        process = _sleeper(server)
        peer = Peer(*server.getsockname())
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield peer
    finally:
        process.kill()
        process.wait()


def _sleeper(server: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], pass_fds=[server.fileno()])  # noqa: S607 - wherever it is


class _Deaf(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        transport.pause_reading()


class _Http(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


class _Dropping(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        transport.abort()


def silence(_primary: Peer | None = None) -> AbstractAsyncContextManager[Peer]:
    """Start a peer that accepts TCP connections and never reads."""
    return listening(lambda _: _Deaf())


def garbage(_primary: Peer) -> AbstractAsyncContextManager[Peer]:
    """Start a server of another protocol."""
    return listening(lambda _: _Http())


def accept_and_drop(_primary: Peer | None = None) -> AbstractAsyncContextManager[Peer]:
    """Start a peer that accepts TCP connections and resets them."""
    return listening(lambda _: _Dropping())


class _NoSuchName(asyncio.DatagramProtocol):
    """A DNS server that knows no name."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        answer = dns.message.make_response(dns.message.from_wire(data))
        answer.set_rcode(dns.rcode.NXDOMAIN)
        answer.flags |= dns.flags.AA | dns.flags.RA
        self._transport.sendto(answer.to_wire(), address)


@asynccontextmanager
async def unresolvable(_primary: Peer) -> AsyncIterator[Peer]:
    """Yield a name that a DNS server denies, with the option that selects this server."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_NoSuchName, local_addr=(loopback_host(), 0))
    host, port = transport.get_extra_info("sockname")
    try:
        yield Peer("nowhere.invalid", 5672, options={"nameserver": f"{host}:{port}"})
    finally:
        transport.close()
        await asyncio.sleep(0)
