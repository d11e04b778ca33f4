"""A silent primary, as a program for proton sees it."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Condition, Message

from haclient.reactor import Container, background_loop
from haclient.testing.peers.listening import url
from haclient.utils import BlockingConnection
from tests.dropin.recorder import FAST, PATIENCE, Recorder, running
from tests.dropin.waiting import on_its_thread, wait_until
from tests.peers.primary import Primary, primary


def fall_silent(peer: Primary) -> None:
    """Send nothing more over the current connections."""
    for engine in peer.engines:
        engine.writable = False


async def test_it_is_reported_with_the_condition_of_proton() -> None:
    async with primary() as peer:

        def connect(container: Container) -> Any:
            return container.connect(url(peer), heartbeat=0.2, reconnect=False)

        conditions: list[Condition | None] = []
        handler = Recorder(
            connect,
            connection_opened=lambda _: fall_silent(peer),
            disconnected=lambda event: conditions.append(event.transport.condition),
        )
        async with running(handler):
            pass
        assert conditions == [Condition("amqp:resource-limit-exceeded", "local-idle-timeout expired")]


def test_it_is_noticed_while_the_application_computes(peer: Primary, monkeypatch: pytest.MonkeyPatch) -> None:
    """During the computation the loop serves only the heartbeats.

    If a busy machine is silent for as long, there are more connections, and the message is sent again.
    """
    monkeypatch.setattr(background_loop, "_TURN_INTERVAL", 3600.0)
    with BlockingConnection(url(peer, heartbeat=1.0), timeout=PATIENCE, **FAST) as connection:
        sender = connection.create_sender("orders")
        before = len(peer.accepted)
        on_its_thread(peer, fall_silent, peer)
        wait_until(lambda: len(peer.accepted) > before)
        sender.send(Message(body="found again"))
    assert set(peer.bodies) == {"found again"}
