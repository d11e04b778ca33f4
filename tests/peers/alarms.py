"""A broker in a memory or disk alarm, like RabbitMQ 4.0.5: the incoming-window of each session is 0.

When the alarm begins and ends, each session gets a Flow without a link. A session that begins meanwhile
has window 0 in its Begin. Links are attached and get credit as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import proton
from proton import uint

from haclient.testing.peers.listening import Peer, listening
from tests.broker_stub.raw_client import BEGIN, FLOW, TRANSFER, WINDOW
from tests.hostile.broker.connection import Arrival, HostileConnection
from tests.hostile.broker.listening import HostileBrokers

USUAL_WINDOW = 400


class AlarmingBroker:
    """The state that all connections share.

    :ivar bodies: the bodies of accepted messages, in order.
    :ivar credit: the credit of each sender.
    """

    def __init__(self, *, credit: int = 170, alarm: bool = False) -> None:
        self.bodies: list[object] = []
        self.credit = credit
        self.alarm = alarm
        self.connections: list[Alarming] = []

    @property
    def window(self) -> int:
        """Return the incoming-window of every session."""
        return 0 if self.alarm else USUAL_WINDOW

    def set_alarm(self, alarm: bool) -> None:
        """Begin or end an alarm."""
        self.alarm = alarm
        for connection in self.connections:
            connection.send_windows()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Peer]:
        """Listen until the end of the block."""
        async with listening(lambda _: Alarming(self)) as peer:
            yield peer


async def until_blocked(sender: Any) -> None:
    """Wait until this sender's client knows of the alarm."""
    async with asyncio.timeout(10):
        while not sender._core.blocked:  # noqa: ASYNC110 - a sender signals nothing
            await asyncio.sleep(0.001)


class Alarming(HostileConnection):
    """One connection to the broker."""

    def __init__(self, broker: AlarmingBroker) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        self._broker = broker
        self._received = 0
        self._payload = bytearray()
        broker.connections.append(self)
        self.instead[BEGIN] = self._begun
        self.instead[TRANSFER] = self._received_transfer

    def send_windows(self) -> None:
        """Send the state of each session."""
        for channel in self.channels:
            self.send(FLOW, self._session_flow(channel), channel=channel)

    def grant_all(self, *, drain: bool = False) -> None:
        """Grant each sender its initial credit again, or request a drain."""
        for link in self.links.values():
            fields = [
                *self._session_flow(link.channel),
                uint(link.handle),
                uint(link.count),
                uint(self._broker.credit),
            ]
            self.send(FLOW, [*fields, None, drain], channel=link.channel)

    def grant(self, link: object, credit: int) -> None:
        super().grant(link, self._broker.credit)  # type: ignore[arg-type]

    def _begun(self, what: Arrival) -> None:
        self.fields[BEGIN] = {2: uint(self._broker.window)}
        self.answer(what)

    def _received_transfer(self, what: Arrival) -> None:
        self._received += 1
        self._payload += what.payload
        if not what.get(5):
            message = proton.Message()
            message.decode(bytes(self._payload))
            self._broker.bodies.append(message.body)
            self._payload.clear()
        self.answer(what)
        if not what.get(5):
            self.grant_all()

    def _session_flow(self, channel: int) -> list[object]:
        return [uint(self._received), uint(self._broker.window), uint(self._next_ids[channel]), WINDOW]
