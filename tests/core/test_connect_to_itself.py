"""If the kernel picks the dialled local port as the source port, TCP connects the client to itself."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import socket
from collections.abc import Callable, Iterator

import pytest

from haclient.core.attempt import _connect_socket

Address = tuple[str, int]


def loops() -> list[object]:
    found: list[object] = [pytest.param(asyncio.new_event_loop, id="asyncio")]
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        found.append(pytest.param(uvloop.new_event_loop, id="uvloop"))
    return found


@pytest.fixture(params=["127.0.0.1", "::1"], ids=["IPv4", "IPv6"])
def bound(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """Return a socket whose source is already a port without a listener."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.setblocking(False)
        made.bind((request.param, 0))
        yield made


def own_address(connection: socket.socket) -> Address:
    host, port = connection.getsockname()[:2]
    return host, port


def connect(loop_factory: Callable[[], asyncio.AbstractEventLoop], connection: socket.socket) -> None:
    async def main() -> None:
        await _connect_socket(asyncio.get_running_loop(), connection, own_address(connection))

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def test_the_kernel_does_connect_a_socket_to_itself(bound: socket.socket) -> None:
    bound.setblocking(True)
    bound.connect(own_address(bound))
    bound.sendall(b"AMQP")
    assert bound.recv(4) == b"AMQP"


@pytest.mark.parametrize("loop_factory", loops())
def test_it_counts_as_a_port_where_nobody_listens(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], bound: socket.socket
) -> None:
    with pytest.raises(ConnectionRefusedError) as refused:
        connect(loop_factory, bound)
    assert refused.value.errno == errno.ECONNREFUSED


@pytest.mark.parametrize("loop_factory", loops())
def test_a_broker_can_listen_there_at_once(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], bound: socket.socket
) -> None:
    address = own_address(bound)
    with pytest.raises(ConnectionRefusedError):
        connect(loop_factory, bound)
    bound.close()
    with socket.socket(bound.family, socket.SOCK_STREAM) as broker:  # without SO_REUSEADDR
        broker.bind(address)
        broker.listen()
