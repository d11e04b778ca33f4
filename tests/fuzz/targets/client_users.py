"""A client with a password, of a peer that may not know it: as ``client``, and it trusts no other peer.

A step ``Kind.PROOF`` is the frame of a peer that knows the password.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock

from haclient import aio
from haclient.engine.sasl import mechanisms
from haclient.errors import HaclientError
from tests.fuzz.scram import ServerProver
from tests.fuzz.script import parse
from tests.fuzz.target import Defect
from tests.fuzz.targets.client import Client
from tests.fuzz.wire import Wire

USER, PASSWORD = "guest", "of the guest"
_URL = f"amqp://{USER}@127.0.0.1,127.0.0.2/?heartbeat=2&max_attempts=4"


class ClientWithUser(Client):
    name = "client_users"

    def __init__(self) -> None:
        super().__init__()
        self.connected = False
        """True if the client accepted the last input's peer."""

    async def _program(self) -> None:
        await self._only_connect()

    async def _only_connect(self) -> None:
        self.connected = False
        try:
            async with aio.connect(_URL, credentials=(USER, PASSWORD)) as connection:
                self.connected = True
                sender = await connection.create_sender("orders", timeout=5)
                await sender.send("one", timeout=5)
        except (HaclientError, TimeoutError):
            return

    def _play(self, wire: Wire, data: bytes) -> None:
        wire.keep, wire.prover = True, ServerProver({USER: PASSWORD})
        wire.say(parse(data))
        if self.connected and not wire.prover.proved:
            raise Defect("a peer without a proof is taken for the primary")
        wire.drop()

    def planted(self) -> AbstractContextManager[object]:
        """A server without a proof is accepted."""
        return mock.patch.object(mechanisms._Scram, "end", return_value=None)


TARGET = ClientWithUser
