"""A client of a member: bytes end at most the client's own connection, and leave no state.

Rules: no traceback is logged, and no exception stays uncaught. After the connection ends, the member
keeps neither the connection nor its temporary queues.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock

from broker_stub.broker import Broker, BrokerOptions
from broker_stub.connections.connection import ClientConnection
from tests.fuzz.members import OPTIONS, OneMember
from tests.fuzz.script import parse
from tests.fuzz.target import Defect, Target
from tests.fuzz.wire import Wire


class Server(Target):
    name = "server"
    scripted = True

    def __init__(self, options: BrokerOptions = OPTIONS) -> None:
        self._members = OneMember(options)

    def run(self, data: bytes) -> None:
        broker = self._members.make()
        engine = broker._accept_socket()
        wire = Wire(self._members.loop, engine)
        engine.connection_made(wire)
        self._members.loop.turn()
        self._play(broker, wire, data)
        left, temporary = len(broker._connections), [queue for queue in broker.addresses if queue.temporary]
        self._members.end()
        if left:
            raise Defect(f"{left} connections are left")
        if temporary:
            raise Defect(f"temporary queues are left: {temporary}")

    def _play(self, broker: Broker, wire: Wire, data: bytes) -> None:
        wire.play(parse(data))

    def planted(self) -> AbstractContextManager[object]:
        """A second session of a connection raises an error in the member."""
        original = ClientConnection.session_opened

        def wrong(self: ClientConnection, engine: object, session: object) -> None:
            if self._began:
                raise RuntimeError("a second session")
            original(self, engine, session)  # type: ignore[arg-type]

        return mock.patch.object(ClientConnection, "session_opened", wrong)

    def close(self) -> None:
        self._members.close()


TARGET = Server
