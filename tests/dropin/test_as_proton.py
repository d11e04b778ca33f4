"""Programs may rely on the same behaviour of ``haclient.reactor`` as of proton, which is the reference.

Every test runs twice, on proton and on the drop-in.  The clients and the servers of one test are on the same
container, and no test measures time.
"""

from __future__ import annotations

import importlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from cproton_ffi import lib
from proton import UNDESCRIBED, Array, Condition, Connection, ConnectionException, Data, Transport, symbol
from proton.handlers import MessagingHandler

from haclient.testing.threads import in_thread
from haclient.version import package_version
from tests.dropin.recorder import PATIENCE
from tests.dropin.test_same_output import free_port
from tests.dropin.waiting import on_its_thread
from tests.peers.primary import primary

REFUSED = "proton.pythonio"


@pytest.fixture(params=["proton", "haclient"])
def package(request: pytest.FixtureRequest) -> str:
    """Return the package of the container."""
    name: str = request.param
    return name


@pytest.fixture
def reactor(package: str) -> Any:
    """Return ``proton.reactor``, or ours."""
    return importlib.import_module(f"{package}.reactor")


@pytest.fixture
def utils(package: str) -> Any:
    """Return ``proton.utils``, or ours."""
    return importlib.import_module(f"{package}.utils")


class Mistake(Exception):
    """An error of an application's handler."""


class Raising:
    """Raises at the first event of every kind of object."""

    def raise_it(self, _event: Any) -> None:
        raise Mistake

    on_reactor_init = on_connection_init = on_session_init = on_link_init = on_timer_task = raise_it


class Server(MessagingHandler):
    """Listens until its first client has closed; records the fields of the client's Open."""

    def __init__(self, *, at_once: bool = True) -> None:
        super().__init__()
        self.address = free_port()
        self.at_once = at_once
        self.acceptor: Any = None
        self.opens: list[Any] = []
        self.hosts: list[str | None] = []
        self.errors: list[Condition] = []

    def listen(self, container: Any) -> None:
        self.acceptor = container.listen(self.address)

    def on_start(self, event: Any) -> None:
        if self.at_once:
            self.listen(event.container)

    def on_connection_opening(self, event: Any) -> None:
        peer = event.connection
        offered, desired = peer.remote_offered_capabilities, peer.remote_desired_capabilities
        self.opens.append((peer.remote_properties, offered, desired))
        self.hosts.append(peer.remote_hostname)

    def on_connection_closing(self, event: Any) -> None:
        event.connection.close()
        self.acceptor.close()

    def on_transport_error(self, event: Any) -> None:
        self.errors.append(event.transport.condition)
        self.acceptor.close()


class Client(MessagingHandler):
    """Leaves as soon as it is connected; records the errors before."""

    def __init__(self, at_error: Callable[[Any], object] = lambda _: None) -> None:
        super().__init__()
        self.errors: list[Condition] = []
        self.connected_to: list[str] = []
        self._at_error = at_error

    def on_connection_opened(self, event: Any) -> None:
        self.connected_to.append(event.connected_address)
        event.connection.close()

    def on_transport_error(self, event: Any) -> None:
        self.errors.append(event.transport.condition)
        self._at_error(event)

    @property
    def names(self) -> list[str]:
        return [error.name for error in self.errors]


class Calling:
    """A timer's handler that calls a function: by then the container's server listens."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def on_timer_task(self, _event: Any) -> None:
        self._function()


def visit(reactor: Any, server: Server, **options: Any) -> Client:
    """Connect to the server and leave."""
    client, container = Client(), reactor.Container(server)
    container.connect(server.address, handler=client, **options)
    container.run()
    assert client.connected_to
    return client


# -- handlers -------------------------------------------------------------------------------------


def _connection(container: Any) -> Any:
    return container.connection()


def _session(container: Any) -> Any:
    return container.connection().session()


def _sender(container: Any) -> Any:
    return container.connection().session().sender("out")


def _receiver(container: Any) -> Any:
    return container.connection().session().receiver("in")


@pytest.mark.parametrize("made", [_connection, _session, _sender, _receiver])
@pytest.mark.parametrize("added", [False, True], ids=["set", "added"])
def test_what_the_handler_of_an_endpoint_raises_leaves_run(reactor: Any, made: Any, added: bool) -> None:
    """An endpoint that the program made and never opened has its first event as well."""
    container = reactor.Container()
    endpoint = made(container)
    endpoint.handler = object() if added else Raising()
    if added:
        endpoint.handler.add(Raising())
    with pytest.raises(Mistake):
        container.run()


def test_what_the_handler_of_a_new_connection_raises_leaves_run(reactor: Any) -> None:
    container = reactor.Container()
    container.connection(Raising())
    with pytest.raises(Mistake):
        container.run()


@pytest.mark.parametrize("added", [False, True], ids=["set", "added"])
def test_what_the_global_handler_raises_leaves_run(reactor: Any, added: bool) -> None:
    container = reactor.Container()
    if added:
        container.global_handler.add(Raising())
    else:
        container.global_handler = Raising()
    with pytest.raises(Mistake):
        container.run()


def test_the_global_handler_gets_an_event_after_its_own_handler(reactor: Any) -> None:
    seen: list[str] = []

    class Noting:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_timer_task(self, _event: Any) -> None:
            seen.append(self.name)

    container = reactor.Container(Noting("container"))
    container.global_handler.add(Noting("global"))
    container.schedule(0, Noting("own"))
    container.run()
    assert seen == ["own", "global"]


@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "plain"])
def test_the_end_of_the_reactor_is_the_last_event(reactor: Any, reconnect: Any) -> None:
    """This holds whatever happens to the sockets of a container that was stopped."""
    seen: list[str] = []

    class Stopping(MessagingHandler):
        def on_unhandled(self, method: str, *_: Any) -> None:
            if seen:
                seen.append(method)

        def on_link_opened(self, event: Any) -> None:
            seen.append("stopped")
            event.container.stop()

        def on_transport_error(self, _event: Any) -> None:
            seen.append("error")

        def on_disconnected(self, _event: Any) -> None:
            seen.append("disconnected")

    with in_thread(primary()) as peer:
        container = reactor.Container(Stopping())
        container.create_sender(container.connect(peer.address, reconnect=reconnect), "orders")
        container.run()
    assert seen[-1] == "on_reactor_final"
    assert not {"error", "disconnected"}.intersection(seen)


# -- fields of the Open ---------------------------------------------------------------------------

PROPERTIES = {"shop": "north", "till": 7}
OFFERED = Array(UNDESCRIBED, Data.SYMBOL, symbol("one"), symbol("two"))
DESIRED = Array(UNDESCRIBED, Data.SYMBOL, symbol("three"), symbol("four"))


@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "plain"])
def test_open_has_the_properties_of_the_program_and_no_others(reactor: Any, reconnect: Any) -> None:
    server = Server()
    visit(
        reactor,
        server,
        reconnect=reconnect,
        properties=PROPERTIES,
        offered_capabilities=OFFERED,
        desired_capabilities=DESIRED,
    )
    assert server.opens == [(PROPERTIES, OFFERED, DESIRED)]


def test_open_of_a_blocking_connection_too(utils: Any) -> None:
    with in_thread(primary()) as peer:
        connection = utils.BlockingConnection(peer.address, timeout=PATIENCE, properties=PROPERTIES)
        (engine,) = peer.engines
        assert engine.peer_properties == PROPERTIES
        connection.close()


def test_without_properties_open_names_the_client_of_a_failover() -> None:
    """Only the drop-in: brokers show the properties to their operators."""
    server = Server()
    visit(importlib.import_module("haclient.reactor"), server)
    ((properties, _, _),) = server.opens
    assert (properties["product"], properties["version"]) == ("haclient", package_version())


@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "plain"])
@pytest.mark.parametrize(("virtual_host", "seen"), [("", None), (None, "127.0.0.1"), ("a.test", "a.test")])
def test_an_empty_virtual_host_leaves_the_name_out(
    reactor: Any, reconnect: Any, virtual_host: str | None, seen: str | None
) -> None:
    server = Server()
    visit(reactor, server, reconnect=reconnect, virtual_host=virtual_host)
    assert server.hosts == [seen]


@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "plain"])
def test_the_address_of_a_connection_has_the_name_of_its_url(reactor: Any, reconnect: Any) -> None:
    """The address is not the one that the name resolves to."""
    server = Server()
    server.address = f"localhost:{server.address.rpartition(':')[2]}"
    assert visit(reactor, server, reconnect=reconnect).connected_to == [f"amqp://{server.address}"]


# -- mechanisms -------------------------------------------------------------------------------------


def test_a_mechanism_that_the_peer_does_not_offer_is_an_error_of_both(utils: Any, reactor: Any) -> None:
    """The client's error has the condition by its name; the server sees a connection that ended too early."""
    server, listens = Server(), threading.Event()
    container = reactor.Container(server)
    container.schedule(0, Calling(listens.set))
    thread = threading.Thread(target=container.run, daemon=True)
    thread.start()
    assert listens.wait(PATIENCE)
    with pytest.raises(ConnectionException, match="amqp:unauthorized-access"):
        utils.BlockingConnection(server.address, timeout=PATIENCE, allowed_mechs="EXTERNAL")
    thread.join(PATIENCE)
    assert [error.name for error in server.errors] == ["amqp:connection:framing-error"]


def test_a_client_that_leaves_before_its_open_is_an_error_of_the_server(reactor: Any) -> None:
    """The client's socket ends without a Close."""
    server = Server()

    host, _, port = server.address.rpartition(":")
    container = reactor.Container(server)
    container.schedule(0, Calling(lambda: socket.create_connection((host, int(port))).close()))
    container.run()
    assert [error.name for error in server.errors] == ["amqp:connection:framing-error"]


class Opening(Server):
    """Answers each link."""

    def on_link_remote_open(self, event: Any) -> None:
        event.link.open()


@pytest.mark.parametrize("name", [b"", b"orders-\xb1"])
def test_a_peer_may_give_a_link_any_name(reactor: Any, name: bytes) -> None:
    """No exception leaves ``run`` because of it."""
    server = Opening()
    host, _, port = server.address.rpartition(":")

    def visits() -> None:
        with socket.create_connection((host, int(port))) as stream:
            stream.sendall(frames_of_a_link(name))

    container = reactor.Container(server)
    container.schedule(0, Calling(visits))
    container.run()
    assert len(server.opens) == 1


def frames_of_a_link(name: bytes) -> bytes:
    """Return Open, Begin, Attach and Close, as proton writes them."""
    connection, transport = Connection(), Transport()
    transport.bind(connection)
    connection.container = "client"
    connection.open()
    session = connection.session()
    session.open()
    lib.pn_link_open(lib.pn_sender(session._impl, name))
    connection.close()
    return bytes(transport.peek(transport.pending()))


# -- attempts that fail -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["list", "backoff"])
def test_each_attempt_that_fails_is_one_error(reactor: Any, form: str) -> None:
    """Two addresses and three delays make six attempts; then the container ends."""
    delays: Any = [0, 0.01, 0.02] if form == "list" else reactor.Backoff(initial=0.01, max_tries=3)
    client = Client()
    container = reactor.Container()
    container.connect(urls=[free_port(), free_port()], handler=client, reconnect=delays)
    container.run()
    assert client.names == [REFUSED] * 6


def test_a_program_may_do_something_about_the_first_error(reactor: Any) -> None:
    """The handler starts the server."""
    server = Server(at_once=False)
    client = Client(at_error=lambda event: server.listen(event.container))
    container = reactor.Container(server)
    container.connect(server.address, handler=client)
    container.run()
    assert client.names == [REFUSED]
    assert client.connected_to == [f"amqp://{server.address}"]


def test_the_second_address_is_used_when_the_first_refuses(reactor: Any) -> None:
    server, client = Server(), Client()
    container = reactor.Container(server)
    container.connect(urls=[free_port(), server.address], handler=client)
    container.run()
    assert client.names == [REFUSED]
    assert client.connected_to == [f"amqp://{server.address}"]


@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "plain"])
def test_a_socket_that_ends_without_a_close_is_one_error(reactor: Any, reconnect: Any) -> None:
    """The loss is another event, which proton reports first."""
    seen: list[str] = []

    class Dropped(MessagingHandler):
        def on_session_opened(self, event: Any) -> None:
            if seen:  # proton and the drop-in connect again
                event.container.stop()
            else:
                on_its_thread(peer, peer.drop)

        def on_transport_error(self, event: Any) -> None:
            seen.append(event.transport.condition.name)

        def on_disconnected(self, _event: Any) -> None:
            seen.append("disconnected")

    with in_thread(primary()) as peer:
        container = reactor.Container(Dropped())
        connection = container.connect(peer.address, reconnect=reconnect)
        container.create_sender(connection, "orders")
        container.run()
    assert seen.count("amqp:connection:framing-error") == 1
    assert set(seen) == {"amqp:connection:framing-error", "disconnected"}
