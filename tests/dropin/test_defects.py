"""Defects of proton's reconnect that the drop-in does not have: links, messages, and handlers' events.

Each test describes proton 0.40.0.  ``test_defects_of_dialling`` has the search for the next
member, ``test_defects_of_blocking`` the blocking calls, ``test_proton_has_them`` runs proton itself.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from proton import LinkException, Message

from haclient.outcome import ACCEPTED
from haclient.reactor import Container
from haclient.testing.peers.deaf import accept_and_drop
from haclient.testing.peers.listening import url
from tests.dropin.recorder import FAST, Recorder, receiving, running, sending
from tests.dropin.waiting import on_its_thread
from tests.peers.primary import Primary, primary
from tests.telemetry.lines import lines, until


async def test_a_loss_is_reported_once_and_everything_opens_again() -> None:
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


async def test_unsettled_sends_are_not_lost() -> None:
    """proton drops them silently."""
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


async def test_a_message_that_a_loss_cut_comes_whole() -> None:
    """proton delivers the part that arrived."""
    body = b"0123456789" * 3_000_000  # more than the buffers of the kernel
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
    """proton writes an empty transfer, or a settlement of another delivery, to the new connection."""
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


async def test_failed_attempts_after_a_loss_are_no_further_losses() -> None:
    """proton calls ``on_disconnected`` twice for each failed attempt."""
    async with accept_and_drop() as nobody, AsyncExitStack() as stack:
        peer = await stack.enter_async_context(primary())
        handler = Recorder(sending(peer, nobody))
        async with running(handler):
            await handler.until("sendable")
            await stack.aclose()
            await until(lambda: len(nobody.accepted) > 3)
            async with primary(host=peer.host, port=peer.port):
                await handler.until("sendable", 2)
                handler.connection.close()
        assert handler.seen.count("disconnected") == 1


async def test_a_sender_without_a_connection_has_no_credit() -> None:
    """proton keeps the credit of the lost connection, and accepts messages that it then drops."""
    async with primary() as peer:
        credit: list[int] = []
        handler = Recorder(
            sending(peer),
            sendable=lambda e: setattr(handler, "sender", e.sender),
            disconnected=lambda _: credit.append(handler.sender.credit),
        )
        async with running(handler):
            await handler.until("sendable")
            peer.drop()
            await handler.until("sendable", 2)
            handler.connection.close()
        assert credit == [0]


async def test_a_message_whose_sending_a_loss_cut_leaves_no_part_of_itself() -> None:
    """proton writes the rest of it to the next connection, where it becomes a separate message."""
    async with primary() as peer:
        data = Message(id=1, body=b"0123456789" * 1000).encode()
        refused: list[LinkException] = []

        def begin(event: Any) -> None:
            if handler.sender is None:
                handler.sender = event.sender
                event.sender.delivery("cut")
                event.sender.stream(data[:5000])
            elif handler.seen.count("link_opened") == 2 and not refused:
                with pytest.raises(LinkException, match="no delivery") as raised:
                    event.sender.stream(data[5000:])
                refused.append(raised.value)
                event.sender.send(Message(id=2, body="whole"))

        handler = Recorder(sending(peer), sendable=begin)
        async with running(handler):
            await handler.until("sendable")
            peer.drop()
            await handler.until("accepted")
            handler.connection.close()
        assert peer.bodies == ["whole"]


def test_a_process_that_stood_still_longer_than_its_heartbeat_goes_on(peer: Primary) -> None:
    """proton raises ``AttributeError`` out of ``run`` if the peer has closed the socket meanwhile."""

    def stand_still(event: Any) -> None:
        if handler.seen.count("connection_opened") == 1:
            on_its_thread(peer, peer.drop)
            time.sleep(1)
        else:
            event.connection.close()

    handler = Recorder(sending(peer, heartbeat=0.4), connection_opened=stand_still)
    Container(handler).run()
    assert handler.seen.count("disconnected") == 1


async def test_telemetry_counts_what_a_loss_left_unsettled_and_what_is_sent_again(tmp_path: Path) -> None:
    async with primary(outcome=None, grants=2) as peer:

        def connect(container: Container) -> Any:
            connection = container.connect(url(peer), telemetry=str(tmp_path), **FAST)
            handler.sender = container.create_sender(connection, "orders")
            for number in range(3):
                handler.sender.send(Message(body=number))
            return connection

        def send_another(_event: Any) -> None:
            handler.sender.send(Message(body=3))

        handler = Recorder(connect, disconnected=send_another)
        async with running(handler):
            await peer.until(lambda: len(peer.received) == 2)
            peer.drop()
            peer.outcome, peer.grants = ACCEPTED, 100
            await handler.until("accepted", 4)
            handler.connection.close()
        await until(lambda: lines(tmp_path, "closed"))
        (lost,) = lines(tmp_path, "lost")
        _, second = lines(tmp_path, "connected")
        assert lost["data"]["haclient.unsettled"] == 3
        assert second["data"]["haclient.replayed"] == 2
        assert peer.copies == 2
