"""The container: features beside failover, and the calls open to a program."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from proton import Condition, Message
from proton.handlers import MessagingHandler

from haclient.outcome import ACCEPTED
from haclient.reactor import ApplicationEvent, AtMostOnce, Container, EventInjector
from haclient.testing.peers.listening import url
from tests.dropin.recorder import FAST, PATIENCE, Recorder, plain, receiving, running, sending
from tests.peers.primary import primary


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


async def test_a_primary_can_tell_the_connections_of_a_container_apart() -> None:
    """A full primary keeps a reconnect time for each connection; all have one container id."""
    async with primary() as peer:
        handler = Recorder(lambda container: [container.connect(url(peer), **FAST) for _ in range(3)])
        async with running(handler):
            await handler.until("session_opened", 3)
            opens = [(each.connection.remote_container, each.peer_properties) for each in peer.engines]
            for connection in handler.connection:
                connection.close()
    assert len({container_id for container_id, _ in opens}) == 1
    assert {properties["haclient:connection"] for _, properties in opens} == {1, 2, 3}


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


async def test_what_a_handler_accepted_before_it_saw_the_close_arrives() -> None:
    async with primary() as peer:
        handler = Recorder(receiving(peer))
        async with running(handler):
            await peer.until(lambda: peer.credit)
            (engine,) = peer.engines
            peer.put("orders", "one")
            engine.close(Condition("amqp:connection:forced", "this member goes away"))  # in the same write
            await peer.until(lambda: engine not in peer.engines)
            await handler.until("connection_opened", 2)
            handler.connection.close()
        assert peer.outcomes == [ACCEPTED]
        assert handler.seen.count("message") == 1
        assert handler.seen.count("disconnected") == 1
        assert len(peer.accepted) == 2


async def test_a_plain_connection_ends_with_its_socket() -> None:
    async with primary() as peer:
        handler = Recorder(plain(url(peer)))
        async with running(handler):
            await handler.until("sendable")
            peer.drop()
        assert handler.seen.count("disconnected") == 1
        assert len(peer.accepted) == 1


async def test_a_plain_connection_to_nobody_is_reported_as_by_proton() -> None:
    async with primary() as peer:
        address = peer.address
    conditions: list[str] = []
    handler = Recorder(
        plain(f"amqp://{address}"), transport_error=lambda e: conditions.append(e.transport.condition.name)
    )
    async with running(handler):
        pass
    assert handler.seen == ["start", "transport_error", "disconnected"]
    assert conditions == ["proton.pythonio"]


async def test_run_inside_a_running_loop_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="run_async"):
        Container().run()


async def test_stop_ends_the_container_and_its_connections() -> None:
    async with primary() as peer:
        handler = Recorder(sending(peer), sendable=lambda e: e.container.stop())
        async with running(handler):
            pass
        await peer.until(lambda: not peer.engines)


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


def test_events_that_come_one_by_one_are_handled_one_by_one() -> None:
    """A proton handler that reads the event which woke it cannot wait."""
    injector = EventInjector()
    handled: queue.Queue[int] = queue.Queue()

    class Handling(MessagingHandler):
        def on_start(self, event: Any) -> None:
            event.container.selectable(injector)

        def on_number(self, event: Any) -> None:
            handled.put(event.subject)

    def trigger() -> None:
        for number in range(100):
            injector.trigger(ApplicationEvent("number", subject=number))
            assert handled.get(timeout=PATIENCE) == number
        injector.close()

    with ThreadPoolExecutor() as pool:
        triggering = pool.submit(trigger)
        Container(Handling()).run()
        triggering.result()


async def test_links_may_be_made_when_the_connection_opens() -> None:
    """The links' events, by which proton's handlers give credit, follow."""
    async with primary() as peer:

        def connect(container: Container) -> Any:
            return container.connect(url(peer), **FAST)

        def make(event: Any) -> None:
            number = handler.seen.count("connection_opened")
            event.container.create_receiver(event.connection, f"news {number}")

        handler = Recorder(connect, connection_opened=make, link_local_open=lambda _: None)
        async with running(handler):
            await peer.until(lambda: len(peer.credit) == 1)
            peer.credit.clear()
            peer.drop()
            await peer.until(lambda: len(peer.credit) == 2)
            handler.connection.close()
        assert peer.credit == [10, 10]
        assert handler.seen.count("link_local_open") == 2


async def test_an_accepted_message_before_a_detach_in_the_same_bytes_is_settled() -> None:
    async with primary() as peer:
        handler = Recorder(receiving(peer))
        async with running(handler):
            await handler.until("link_opened")
            [[link]] = peer.engines.values()
            peer.put("orders", "one", "two")
            link.close()
            await handler.until("message", 2)
            await peer.until(lambda: link.dead)
            handler.connection.close()
        assert peer.outcomes == [ACCEPTED, ACCEPTED]
