"""Every callback: closing inside it works, and its exception reaches the caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import proton
import pytest
from proton import Condition, Message
from proton.handlers import MessagingHandler, Reject, Release
from proton.reactor import ApplicationEvent

from haclient.outcome import RELEASED, Outcome, OutcomeState
from haclient.reactor import Container
from haclient.testing.peers.deaf import refused
from haclient.testing.peers.listening import Peer
from haclient.utils import BlockingConnection
from tests.dropin.recorder import FAST, PATIENCE, Recorder, running
from tests.dropin.waiting import on_its_thread, wait_until
from tests.peers.primary import Primary, primary

GONE = Condition("amqp:resource-deleted", "the queue is gone")
AWAY = Condition("amqp:not-allowed", "go away")
OUTCOMES = {"rejected": Outcome(OutcomeState.REJECTED), "released": RELEASED}
# Callbacks of every connection with a sender and a receiver, each of which has a message.
USUAL = [
    *("start", "done", "timer_task"),
    *("connection_init", "connection_bound", "connection_local_open", "connection_remote_open"),
    *("connection_opened", "session_init", "session_local_open", "session_remote_open", "session_opened"),
    *("link_init", "link_local_open", "link_remote_open", "link_opened", "link_flow", "sendable"),
    *("delivery", "accepted", "rejected", "released", "settled", "message"),
]
Does = dict[str, Callable[[Any], object]]


def provoking(peer: Primary) -> dict[str, Does]:
    """Provoke the callback after a message was settled or accepted."""

    def end(event: Any) -> None:
        event.connection.close()

    lost: Does = {"settled": lambda _: peer.drop()}
    return {
        "disconnected": lost,
        "transport_closed": lost,
        "link_local_close": {"accepted": lambda event: event.link.close()},
        "link_closed": {"accepted": lambda event: event.link.close()},
        "link_remote_close": {"settled": lambda _: peer.detach(GONE)},
        "link_error": {"settled": lambda _: peer.detach(GONE)},
        "link_closing": {"settled": lambda _: peer.detach(None)},  # type: ignore[arg-type]
        "session_local_close": {"accepted": lambda event: event.session.close()},
        "session_closed": {"accepted": lambda event: event.session.close()},
        "session_remote_close": {"settled": lambda _: peer.end_sessions(GONE)},
        "session_error": {"settled": lambda _: peer.end_sessions(GONE)},
        "session_closing": {"settled": lambda _: peer.end_sessions()},
        "connection_remote_close": {"settled": lambda _: peer.close(AWAY)},
        "connection_error": {"settled": lambda _: peer.close(AWAY)},
        "connection_local_close": {"settled": end},
        "connection_closed": {"settled": end},
        "reactor_final": {"settled": end},
    }


CALLBACKS = [*USUAL, *provoking(Primary("", 0))]


class Scene(Recorder):
    """A connection on which a callback is called."""

    def __init__(self, peer: Primary, callback: str, reconnect: Any) -> None:
        peer.put("news", "one")
        peer.outcome = OUTCOMES.get(callback, peer.outcome)
        nothing: Does = {callback: lambda _: None}
        super().__init__(self.begin, **{**nothing, **provoking(peer).get(callback, {})})
        self.peer, self.reconnect = peer, reconnect

    def begin(self, container: Container) -> Any:
        """Connect, and start everything that the usual callbacks need."""
        connection = container.connect(f"amqp://{self.peer.address}", reconnect=self.reconnect, **FAST)
        container.create_sender(connection, "orders").send(Message(body="one"))
        container.create_receiver(connection, "news")
        container.schedule(0, self)
        container.push_event(ApplicationEvent("done"), None)
        return connection

    def close(self, event: Any) -> None:
        """Close in a callback."""
        (getattr(event, "connection", None) or self.connection).close()


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "plain"])
async def test_closing_inside_a_callback_works(callback: str, reconnect: Any) -> None:
    async with primary() as peer:
        scene = Scene(peer, callback, reconnect)
        scene.does[callback] = scene.close
        async with running(scene):
            pass
        assert callback in scene.seen
        await peer.until(lambda: not peer.engines)


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "plain"])
async def test_what_a_handler_raises_reaches_the_caller(callback: str, reconnect: Any) -> None:
    class Mistake(Exception):
        pass

    def fail(_event: Any) -> None:
        raise Mistake(callback)

    async with primary() as peer:
        scene = Scene(peer, callback, reconnect)
        scene.does[callback] = fail
        with pytest.raises(Mistake, match=callback):
            await asyncio.wait_for(Container(scene).run_async(), PATIENCE)
        await peer.until(lambda: not peer.engines)


@pytest.mark.parametrize("reconnect", [[0], False], ids=["failover", "plain"])
@pytest.mark.parametrize("raises", [False, True])
async def test_closing_and_raising_when_a_search_gave_up(reconnect: Any, raises: bool) -> None:
    async with refused(Peer("", 0)) as nobody:

        def connect(container: Container) -> Any:
            return container.connect(nobody.address, reconnect=reconnect)

        def answer(event: Any) -> None:
            if raises:
                raise ZeroDivisionError
            event.connection.close()

        handler = Recorder(connect, transport_error=answer)
        container = Container(handler)
        with pytest.raises(ZeroDivisionError) if raises else contextlib.nullcontext():
            await asyncio.wait_for(container.run_async(), PATIENCE)
        assert "transport_error" in handler.seen


@pytest.mark.parametrize("callback", ["connection_opening", "session_opening", "link_opening", "message"])
@pytest.mark.parametrize("raises", [False, True])
async def test_closing_and_raising_in_the_callbacks_of_a_listener(callback: str, raises: bool) -> None:
    """proton opens a connection after ``on_connection_opening``, whatever the callback did to it."""

    def connect(container: Container) -> Any:
        acceptor = container.listen("127.0.0.1:0")
        handler.does["transport_closed"] = lambda _: acceptor.close()
        host, port = acceptor.address
        connection = container.connect(f"amqp://{host}:{port}", reconnect=False)
        container.create_sender(connection, "orders").send(Message(body="one"))
        return connection

    def answer(event: Any) -> None:
        if raises:
            raise ZeroDivisionError
        (event.connection if callback != "connection_opening" else handler.connection).close()

    handler = Recorder(connect, transport_closed=lambda _: None, **{callback: answer})
    container = Container(handler)
    with pytest.raises(ZeroDivisionError) if raises else contextlib.nullcontext():
        await asyncio.wait_for(container.run_async(), PATIENCE)
    assert callback in handler.seen


@pytest.mark.parametrize(
    ("verdict", "state"), [(Reject, OutcomeState.REJECTED), (Release, OutcomeState.MODIFIED)]
)
async def test_a_verdict_that_is_raised_settles_the_message(
    verdict: type[Exception], state: OutcomeState
) -> None:
    def judge(_event: Any) -> None:
        if not peer.outcomes:
            raise verdict

    async with primary() as peer:
        scene = Scene(peer, "message", None)
        scene.does["message"] = judge
        async with running(scene):
            await peer.until(lambda: peer.outcomes)
            scene.connection.close()
        outcome = peer.outcomes[0]
        assert outcome is not None
        assert outcome.state is state


def test_run_raises_what_a_handler_raised() -> None:
    class Failing(MessagingHandler):
        def on_start(self, event: Any) -> None:
            raise ZeroDivisionError("in a handler")

    with pytest.raises(ZeroDivisionError, match="in a handler"):
        Container(Failing()).run()


def test_an_interrupt_ends_run() -> None:
    def interrupt(_event: Any) -> None:
        raise KeyboardInterrupt

    handler = Recorder(lambda container: container.schedule(0, handler), timer_task=interrupt)
    with pytest.raises(KeyboardInterrupt):
        Container(handler).run()


class Answering(MessagingHandler):
    """The handler of a blocking receiver."""

    def __init__(self, **does: Callable[[Any], object]) -> None:
        super().__init__(prefetch=0)
        self.answered: list[Any] = []
        for name, do in does.items():
            setattr(self, f"on_{name}", lambda event, do=do: self.answered.append(do(event)))


def receive_until(
    connection: BlockingConnection, handler: MessagingHandler, true: Callable[[], object]
) -> None:
    """Let a handler receive the available messages."""
    connection.create_receiver("news", handler=handler, credit=10)
    connection.wait(true)


@pytest.mark.parametrize("callback", ["link_opened", "delivery", "message"])
def test_closing_inside_a_callback_of_blocking_calls_works(
    peer: Primary, connection: BlockingConnection, callback: str
) -> None:
    connection.create_sender("orders")
    on_its_thread(peer, peer.put, "news", "one")
    handler = Answering(**{callback: lambda _: connection.close()})
    with pytest.raises(proton.ConnectionException, match="closed"):
        receive_until(connection, handler, lambda: False)
    assert handler.answered
    connection.close()
    wait_until(lambda: not peer.engines)


def test_a_callback_of_blocking_calls_may_make_one(peer: Primary, connection: BlockingConnection) -> None:
    sender = connection.create_sender("answers")
    on_its_thread(peer, peer.put, "news", "one", "two")
    handler = Answering(message=lambda event: sender.send(Message(body=f"to {event.message.body}")))
    receive_until(connection, handler, lambda: len(handler.answered) == 2)
    assert peer.bodies == ["to one", "to two"]
    assert all(delivery.settled for delivery in handler.answered)


def test_what_a_callback_of_blocking_calls_raises_reaches_the_caller(
    peer: Primary, connection: BlockingConnection
) -> None:
    def fail(_event: Any) -> None:
        raise ZeroDivisionError

    sender = connection.create_sender("orders")
    on_its_thread(peer, peer.put, "news", "one")
    with pytest.raises(ZeroDivisionError):
        receive_until(connection, Answering(message=fail), lambda: False)
    sender.send(Message(body="the connection goes on"))
    assert peer.bodies == ["the connection goes on"]
