"""The container over losses: what handlers see, and the defects of proton's reconnect that stay away.

Container and peers share the test's event loop, so a handler may do to a peer what it likes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import proton
import pytest
from proton import Condition, Message
from proton.handlers import MessagingHandler

from haclient.outcome import ACCEPTED
from haclient.reactor import ApplicationEvent, AtMostOnce, Backoff, Container, EventInjector
from tests.peers import passive
from tests.peers.deaf import unresolvable
from tests.peers.listening import Peer, url
from tests.peers.primary import primary

FAST: dict[str, Any] = {"backoff_base": 0.01, "backoff_max": 0.05}
PATIENCE = 20.0


class Recorder(MessagingHandler):
    """Notes what happens, and does what the test gives it for each event by name."""

    def __init__(self, connect: Callable[[Container], Any], *, prefetch: int = 10, **does: Any) -> None:
        self.options = {name: does.pop(name) for name in ("auto_accept", "auto_settle") if name in does}
        super().__init__(prefetch=prefetch, **self.options)
        self.does = does
        self.seen: list[str] = []
        self.changed = asyncio.Event()
        self._connect = connect

    def on_start(self, event: Any) -> None:
        self.connection = self._connect(event.container)
        self.note("start", event)

    def note(self, name: str, event: Any) -> None:
        self.seen.append(name)
        self.changed.set()
        if name in self.does:
            self.does[name](event)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_") and name[3:] in _HANDLED:
            return lambda event: self.note(name[3:], event)
        raise AttributeError(name)

    async def until(self, name: str, times: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.seen.count(name) < times:
                self.changed.clear()
                await self.changed.wait()


_HANDLED = {
    "connection_opened",
    "session_opened",
    "link_opened",
    "sendable",
    "accepted",
    "released",
    "rejected",
    "settled",
    "message",
    "disconnected",
    "connection_closed",
    "connection_error",
    "link_error",
    "transport_error",
    "timer_task",
}
for _name in _HANDLED - {"timer_task"}:  # proton's handler has methods of these names

    def _method(self: Recorder, event: Any, name: str = _name) -> None:
        self.note(name, event)

    setattr(Recorder, f"on_{_name}", _method)


@asynccontextmanager
async def running(handler: MessagingHandler) -> AsyncIterator[Container]:
    """A container that runs beside the test; it must end by itself, or is cancelled after a failure."""
    container = Container(handler)
    task = asyncio.create_task(container.run_async())
    try:
        yield container
        async with asyncio.timeout(PATIENCE):
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def sending(*peers: Peer, **options: Any) -> Callable[[Container], Any]:
    def connect(container: Container) -> Any:
        fast = {} if "reconnect" in options else FAST
        connection = container.connect(url(*peers), **fast, **options)
        container.create_sender(connection, "orders")
        return connection

    return connect


def receiving(*peers: Peer, **options: Any) -> Callable[[Container], Any]:
    def connect(container: Container) -> Any:
        connection = container.connect(url(*peers), **FAST, **options)
        container.create_receiver(connection, "orders")
        return connection

    return connect


async def test_a_loss_is_told_once_and_everything_opens_again() -> None:
    async with primary() as peer:
        handler = Recorder(sending(peer))
        async with running(handler):
            await handler.until("sendable")
            peer.drop()
            await handler.until("sendable", 2)
            handler.connection.close()
    opened = ["connection_opened", "session_opened", "link_opened", "sendable"]
    seen = [name for name in handler.seen if name != "transport_error"]
    assert seen == ["start", *opened, "disconnected", *opened, "connection_closed"]


async def test_the_sender_of_the_start_sends_over_the_new_connection() -> None:
    async with primary() as peer:
        senders: set[Any] = set()

        def send(event: Any) -> None:
            senders.add(event.sender)
            event.sender.send(Message(body=len(handler.seen)))

        handler = Recorder(sending(peer), sendable=send)
        async with running(handler):
            await handler.until("accepted")
            peer.drop()
            await handler.until("accepted", 2)
            handler.connection.close()
        assert len(senders) == 1
        assert len(peer.bodies) >= 2


async def test_unsettled_sends_are_not_lost() -> None:
    """proton drops them without a word."""
    async with primary(outcome=None) as peer:
        sent: list[Any] = []
        accepted: list[Any] = []

        def send(event: Any) -> None:
            while len(sent) < 3:
                sent.append(event.sender.send(Message(body=len(sent))))

        handler = Recorder(sending(peer), sendable=send, accepted=lambda e: accepted.append(e.delivery))
        async with running(handler):
            await peer.until(lambda: len(peer.received) == 3)
            peer.outcome = ACCEPTED
            peer.drop()
            await handler.until("accepted", 3)
            handler.connection.close()
        assert accepted == sent
        assert [delivery.tag for delivery in sent] == ["1", "2", "3"]
        assert all(delivery.remote_state == delivery.ACCEPTED for delivery in sent)
        assert (peer.bodies, peer.copies) == ([0, 1, 2], 3)


async def test_what_is_sent_while_there_is_no_connection_goes_out_later() -> None:
    async with primary() as peer:

        def send(event: Any) -> None:
            if handler.seen.count("disconnected") == 1:
                handler.sender.send(Message(body="sent in between"))

        def connect(container: Container) -> Any:
            connection = container.connect(url(peer), **FAST)
            handler.sender = container.create_sender(connection, "orders")
            handler.sender.send(Message(body="sent before"))
            return connection

        handler = Recorder(connect, disconnected=send)
        async with running(handler):
            await handler.until("accepted")
            peer.drop()
            await handler.until("accepted", 2)
            handler.connection.close()
        assert peer.bodies == ["sent before", "sent in between"]


@pytest.mark.parametrize("options", [None, AtMostOnce()], ids=["settled by the program", "sent settled"])
async def test_what_nobody_waits_for_is_sent_all_the_same(options: Any) -> None:
    async with primary() as peer:

        def connect(container: Container) -> Any:
            connection = container.connect(url(peer), **FAST)
            sender = container.create_sender(connection, "orders", options=options)
            sender.send(Message(body="fire and forget")).settle()
            return connection

        handler = Recorder(connect)
        async with running(handler):
            await peer.until(lambda: peer.received)
            handler.connection.close()
        assert peer.bodies == ["fire and forget"]
        assert "accepted" not in handler.seen


async def test_a_program_that_sends_again_by_itself_sends_no_second_copy() -> None:
    async with primary(outcome=None) as peer:
        state = {"sent": 0, "confirmed": 0}

        def send(event: Any) -> None:
            while event.sender.credit and state["sent"] < 5:
                event.sender.send(Message(id=state["sent"], body=state["sent"]))
                state["sent"] += 1

        def confirmed(event: Any) -> None:
            state["confirmed"] += 1

        handler = Recorder(
            sending(peer),
            sendable=send,
            accepted=confirmed,
            disconnected=lambda _: state.update(sent=state["confirmed"]),
        )
        async with running(handler):
            await peer.until(lambda: len(peer.received) == 5)
            peer.outcome = ACCEPTED
            peer.drop()
            await handler.until("accepted", 5)
            handler.connection.close()
        assert state == {"sent": 5, "confirmed": 5}
        assert peer.bodies == [0, 1, 2, 3, 4]


async def test_a_program_that_sends_again_after_the_ledger_did_sends_no_second_copy() -> None:
    async with primary(outcome=None) as peer:
        senders: list[Any] = []

        def send(event: Any) -> None:
            if not senders:
                senders.append(event.sender)
                event.sender.send(Message(id=1, body="once"))

        handler = Recorder(sending(peer), sendable=send)
        async with running(handler):
            await peer.until(lambda: len(peer.received) == 1)
            peer.outcome = ACCEPTED
            peer.drop()
            await handler.until("accepted", 1)
            senders[0].send(Message(id=1, body="once"))
            senders[0].send(Message(id=2, body="another"))
            await handler.until("accepted", 2)
            handler.connection.close()
        assert peer.bodies == ["once", "another"]


async def test_a_message_that_a_loss_cut_comes_whole() -> None:
    """proton delivers what it had of it."""
    body = b"0123456789" * 300_000
    async with primary() as peer:
        peer.put("orders", body)
        bodies: list[Any] = []

        def cut(event: Any) -> None:
            if event.delivery.partial and not bodies and len(peer.accepted) == 1:
                peer.drop()

        class Cutting(Recorder):
            def on_delivery(self, event: Any) -> None:
                cut(event)

        handler = Cutting(receiving(peer), message=lambda e: bodies.append(bytes(e.message.body)))
        async with running(handler):
            await handler.until("message")
            handler.connection.close()
        assert len(peer.accepted) == 2
        assert bodies == [body]


async def test_settling_a_delivery_of_a_lost_connection_changes_nothing() -> None:
    """proton puts an empty transfer, or a settlement of something else, on the new connection."""
    async with primary() as peer:
        peer.put("orders", "one")
        deliveries: list[Any] = []
        handler = Recorder(
            receiving(peer), auto_accept=False, message=lambda e: deliveries.append(e.delivery)
        )
        async with running(handler):
            await handler.until("message")
            peer.drop()
            await handler.until("message", 2)
            old, new = deliveries
            handler.accept(old)
            handler.accept(old)
            assert old != new
            handler.accept(new)
            await peer.until(lambda: peer.outcomes)
            handler.connection.close()
        assert peer.outcomes == [ACCEPTED]
        assert not peer.queues["orders"]


@pytest.mark.parametrize("prefetch", [10, 0])
async def test_credit_is_not_counted_twice(prefetch: int) -> None:
    async with primary() as peer:

        def connect(container: Container) -> Any:
            connection = container.connect(url(peer), **FAST)
            receiver = container.create_receiver(connection, "orders")
            if not prefetch:
                receiver.flow(10)
            return connection

        handler = Recorder(connect, prefetch=prefetch, auto_accept=False)
        async with running(handler):
            await peer.until(lambda: peer.credit == [10])
            peer.put("orders", "one", "two")
            await handler.until("message", 2)
            peer.credit.clear()
            peer.drop()
            await handler.until("message", 4)
            await peer.until(lambda: peer.credit)
            handler.connection.close()
        assert max(peer.credit) == 10


async def test_a_redirect_is_followed() -> None:
    async with primary() as peer, passive.redirecting(opens=True, with_port=True)(peer) as member:
        handler = Recorder(sending(member, redirects="any"))
        async with running(handler):
            await handler.until("sendable")
            handler.connection.close()
        assert len(peer.accepted) == 1
        assert "connection_error" not in handler.seen


@pytest.mark.parametrize(
    "name", ["amqp:connection:forced", "amqp:connection:redirect", "amqp:resource-limit-exceeded", None]
)
async def test_a_primary_that_says_goodbye_is_a_loss(name: str | None) -> None:
    """proton takes most of them for errors, and waits for ever after ``forced``."""
    async with primary() as peer:
        handler = Recorder(sending(peer))
        async with running(handler):
            await handler.until("sendable")
            peer.close(Condition(name, "moving on") if name else None)
            await handler.until("sendable", 2)
            handler.connection.close()
        assert handler.seen.count("disconnected") == 1
        assert not {"connection_error", "transport_error"}.intersection(handler.seen)


async def test_a_close_that_is_an_error_ends_the_connection() -> None:
    async with primary() as peer:
        errors: list[Any] = []
        handler = Recorder(
            sending(peer), connection_error=lambda e: errors.append(e.connection.remote_condition)
        )
        async with running(handler):
            await handler.until("sendable")
            peer.close(Condition("amqp:not-allowed", "go away"))
        assert [error.name for error in errors] == ["amqp:not-allowed"]
        assert len(peer.accepted) == 1
        assert "disconnected" not in handler.seen


async def test_a_name_that_cannot_be_resolved_is_no_exception() -> None:
    async with primary() as peer, unresolvable(peer) as nowhere:
        handler = Recorder(sending(nowhere, peer))
        async with running(handler):
            await handler.until("sendable")
            handler.connection.close()


async def test_a_peer_that_opens_and_drops_makes_no_hot_loop() -> None:
    """proton connects again at once, hundreds of times a second."""
    async with passive.open_and_drop() as peer:
        handler = Recorder(sending(peer, reconnect=Backoff(initial=0.2, max_delay=0.2)))
        async with running(handler):
            await handler.until("disconnected", 10)
            handler.connection.close()
        # Ten delays of up to 0.2 s, jittered: all of them short is next to impossible.
        assert peer.accepted[9] - peer.accepted[0] > 0.1


async def test_giving_up_is_told_once_and_ends_the_container() -> None:
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(primary())
        handler = Recorder(sending(peer, reconnect=[0, 0.01]))
        async with running(handler):
            await handler.until("sendable")
            await stack.aclose()  # nobody listens there any more
    assert handler.seen.count("disconnected") == 1
    assert handler.seen[-1] == "transport_error"


async def test_a_plain_connection_ends_with_its_socket() -> None:
    async with primary() as peer:
        handler = Recorder(_plain(url(peer)))
        async with running(handler):
            await handler.until("sendable")
            peer.drop()
        assert handler.seen.count("disconnected") == 1
        assert len(peer.accepted) == 1


async def test_a_plain_connection_to_nobody_is_told_as_by_proton() -> None:
    async with primary() as peer:
        address = peer.address
    conditions: list[str] = []
    handler = Recorder(
        _plain(f"amqp://{address}"), transport_error=lambda e: conditions.append(e.transport.condition.name)
    )
    async with running(handler):
        pass
    assert handler.seen == ["start", "transport_error", "disconnected"]
    assert conditions == ["proton.pythonio"]


def _plain(address: str) -> Callable[[Container], Any]:
    def connect(container: Container) -> Any:
        connection = container.connect(address, reconnect=False)
        container.create_sender(connection, "orders")
        return connection

    return connect


async def test_it_works_beyond_the_file_descriptors_of_select() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        async with primary() as peer:
            handler = Recorder(sending(peer), sendable=lambda e: e.sender.send(Message(body="one")))
            async with running(handler):
                await handler.until("accepted")
                handler.connection.close()
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


CALLBACKS = [
    "start",
    "connection_opened",
    "session_opened",
    "link_opened",
    "sendable",
    "accepted",
    "settled",
    "message",
    "disconnected",
]


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "plain"])
async def test_closing_inside_a_callback_works(callback: str, reconnect: Any) -> None:
    async with primary() as peer:
        peer.put("news", "one")

        def close(event: Any) -> None:
            (event.connection or handler.connection).close()

        def connect(container: Container) -> Any:
            connection = container.connect(f"amqp://{peer.address}", reconnect=reconnect, **FAST)
            container.create_sender(connection, "orders").send(Message(body="one"))
            container.create_receiver(connection, "news")
            return connection

        does: dict[str, Any] = {"settled": lambda _: peer.drop()} if callback == "disconnected" else {}
        handler = Recorder(connect, **{**does, callback: close})
        async with running(handler):
            pass
        assert callback in handler.seen
        assert not peer.engines


@pytest.mark.parametrize("callback", [*CALLBACKS, "timer_task"])
async def test_what_a_handler_raises_reaches_the_caller(callback: str) -> None:
    class Mistake(Exception):
        pass

    def fail(_event: Any) -> None:
        raise Mistake(callback)

    async with primary() as peer:
        peer.put("news", "one")

        def connect(container: Container) -> Any:
            connection = container.connect(f"amqp://{peer.address}", **FAST)
            container.create_sender(connection, "orders").send(Message(body="one"))
            container.create_receiver(connection, "news")
            if callback == "timer_task":
                container.schedule(0, handler)
            return connection

        does: dict[str, Any] = {"settled": lambda _: peer.drop()} if callback == "disconnected" else {}
        handler = Recorder(connect, **{**does, callback: fail})
        with pytest.raises(Mistake, match=callback):
            await asyncio.wait_for(Container(handler).run_async(), PATIENCE)
        await peer.until(lambda: not peer.engines)


def test_run_raises_what_a_handler_raised() -> None:
    class Failing(MessagingHandler):
        def on_start(self, event: Any) -> None:
            raise ZeroDivisionError("in a handler")

    with pytest.raises(ZeroDivisionError, match="in a handler"):
        Container(Failing()).run()


async def test_run_inside_a_running_loop_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="run_async"):
        Container().run()


async def test_stop_ends_the_container_and_its_connections() -> None:
    async with primary() as peer:
        handler = Recorder(sending(peer), sendable=lambda e: e.container.stop())
        async with running(handler):
            pass
        await peer.until(lambda: not peer.engines)


async def test_many_connections_leave_nothing_behind() -> None:
    async with primary() as peer:

        async def visit() -> None:
            handler = Recorder(sending(peer), sendable=lambda e: e.connection.close())
            await Container(handler).run_async()

        await visit()
        before = _resources()
        for _ in range(50):
            await asyncio.gather(*(visit() for _ in range(20)))
        await peer.until(lambda: not peer.engines)
        assert _resources() <= before


def _resources() -> tuple[int, int, int]:
    """File descriptors, tasks, and objects of proton and of the drop-in that are alive."""
    gc.collect()
    kinds = (proton.Endpoint, proton.Transport, proton.Collector, Container)
    alive = sum(issubclass(type(each), kinds) for each in gc.get_objects())
    return len(list(Path("/proc/self/fd").iterdir())), len(asyncio.all_tasks()), alive


class Transacting(Recorder):
    def on_transaction_declare_failed(self, event: Any) -> None:
        assert event.transaction is self.transaction
        self.note("declare failed", event)


async def test_a_transaction_ends_with_its_connection() -> None:
    async with primary(outcome=None) as peer:

        def connect(container: Container) -> Any:
            connection = container.connect(url(peer), **FAST)
            handler.transaction = container.declare_transaction(connection, handler=handler)
            return connection

        handler = Transacting(connect)
        async with running(handler):
            await peer.until(lambda: peer.received)
            peer.drop()
            await handler.until("declare failed")
            handler.connection.close()
        assert len(peer.received) == 1


async def test_coroutines_beside_the_container_may_use_its_links() -> None:
    async with primary() as peer:

        def connect(container: Container) -> Any:
            connection = container.connect(url(peer), **FAST)
            handler.sender = container.create_sender(connection, "orders")
            return connection

        handler = Recorder(connect)
        async with running(handler):
            await handler.until("sendable")
            handler.sender.send(Message(body="from a coroutine"))
            await handler.until("accepted")
            handler.connection.close()
        assert peer.bodies == ["from a coroutine"]


def test_a_container_may_be_turned_by_hand() -> None:
    handler = Recorder(lambda container: container.schedule(0.01, handler))
    container = Container(handler)
    container.start()
    container.timeout = 0.05
    rounds = 0
    while container.process():
        rounds += 1
    container.shut_down()
    assert handler.seen == ["start", "timer_task"]
    assert 0 < rounds < 10


def test_an_interrupt_ends_run() -> None:
    handler = Recorder(lambda container: container.schedule(0, handler), timer_task=_interrupt)
    with pytest.raises(KeyboardInterrupt):
        Container(handler).run()


def _interrupt(_event: Any) -> None:
    raise KeyboardInterrupt


def test_an_injector_that_is_closed_leaves_no_pipe() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(100):
        injector = EventInjector()
        Container(Injected(injector)).run()
        injector.trigger(ApplicationEvent("done"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


class Injected(MessagingHandler):
    def __init__(self, injector: EventInjector) -> None:
        super().__init__()
        self.injector = injector

    def on_start(self, event: Any) -> None:
        event.container.selectable(self.injector)
        self.injector.trigger(ApplicationEvent("done", subject="it"))

    def on_done(self, event: Any) -> None:
        self.injector.close()


def test_credentials_belong_to_their_url() -> None:
    from haclient.reactor.addresses import cluster

    found = cluster(["amqp://ann:secret@one:1", "two:2"], None, None)
    assert [(seed.endpoint.host, seed.user) for seed in found.seeds] == [("one", "ann"), ("two", None)]
    found = cluster(["amqp://ann:secret@one:1", "two:2"], "ben", "hidden")
    assert [(seed.endpoint.host, seed.user) for seed in found.seeds] == [("one", "ann"), ("two", "ben")]
    assert proton.Url("two:2").port == found.seeds[1].endpoint.port
