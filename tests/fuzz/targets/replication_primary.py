"""A primary of a lying backup: no message is settled before a ready replica has acknowledged it.

Rules: no traceback is logged, and no exception stays uncaught. A replica that holds the arbiter's
generation has accepted each message before it is settled. The lying connection ends, and no other. The
member stays primary, and settles again after the liar has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Self
from unittest import mock

from broker_stub.admission.auth import Auth
from broker_stub.broker import Broker
from broker_stub.election.roles import Role
from broker_stub.queueing.queue import Queue
from broker_stub.replication.data_link import DataLink
from broker_stub.replication.queue_feed import QueueFeed
from broker_stub.replication.replica import Replica
from haclient.outcome import ACCEPTED
from tests.fuzz import pair
from tests.fuzz.members import OneMember
from tests.fuzz.script import Kind, Step, parse
from tests.fuzz.target import CORPUS, Defect, Target
from tests.fuzz.wire import Wire

_ATTACH = b"\x00\x53\x12"


class ReplicationPrimary(Target):
    name = "replication_primary"
    scripted = True

    def __init__(self) -> None:
        self._members = OneMember()
        self._admin = mock.patch.object(Auth, "is_admin", _yes)
        self._admin.start()
        self._honest = list(_before_its_links(parse((CORPUS / "server" / "send").read_bytes())))

    def run(self, data: bytes) -> None:
        loop = self._members.loop
        arbiter = pair.Arbiter()
        broker, queue = self._members.make_by(_primary(arbiter))
        assert broker.member is not None
        with Watch(arbiter, queue) as watch:
            honest, lying = self._connect(broker), self._connect(broker)
            honest.say(self._honest)
            lying.play(self._steps(data, broker, watch))
            loop.advance(1)
            self._members.call(watch.enqueue)
            loop.advance(1)
            watch.check()
            if broker.membership.role is not Role.PRIMARY:
                raise Defect(f"it is {broker.membership.role}")
            if honest.is_closing() or len(broker._connections) != 1:
                raise Defect(f"there are {len(broker._connections)} connections")
            honest.drop()
            stopping = loop.create_task(broker.member.stop())
            loop.advance(1)
            stopping.result()
        broker._listener.close()
        self._members.end()

    def _connect(self, broker: Broker) -> Wire:
        engine = broker._accept_socket()
        wire = Wire(self._members.loop, engine)
        engine.connection_made(wire)
        self._members.loop.turn()
        return wire

    def _steps(self, data: bytes, broker: Broker, watch: Watch) -> Iterator[Step]:
        """Yield the steps of a script. While a replica is ready, a message precedes each step."""
        assert broker.member is not None
        for step in parse(data):
            if broker.member.replica_set is not None and broker.member.replica_set.ready:
                self._members.call(watch.enqueue)
            yield step

    def planted(self) -> AbstractContextManager[object]:
        """An event that the backup releases counts as acknowledged."""
        original = QueueFeed.settled

        def wrong(self: QueueFeed, number: int | None, outcome: Any) -> None:
            released = outcome is not None and not outcome.accepted and not outcome.description
            original(self, number, ACCEPTED if released else outcome)

        return mock.patch.object(QueueFeed, "settled", wrong)

    def close(self) -> None:
        self._admin.stop()
        self._members.close()


class Watch:
    """Compares the backup's generations and accepts with the primary's settlements."""

    def __init__(self, arbiter: pair.Arbiter, queue: Queue) -> None:
        self._arbiter, self._queue = arbiter, queue
        self._promised: dict[str, int] = {}
        """The last generation handed to each replica."""
        self._accepted: set[tuple[str, int]] = set()
        self._waiting: set[int] = set()
        self._wrong = ""
        settled, command = DataLink.settled, Replica.command

        def see_settled(link: DataLink, sender: Any, token: Any, outcome: Any) -> None:
            source, number, _ = token
            if number is not None and outcome is not None and outcome.accepted:
                self._accepted.add((source._replica.name, number))
            settled(link, sender, token, outcome)

        def see_command(replica: Replica, operation: str, arguments: Any) -> Any:
            if operation == "number":
                self._promised[replica.name] = arguments["number"]
            return command(replica, operation, arguments)

        self._patches = (
            mock.patch.object(DataLink, "settled", see_settled),
            mock.patch.object(Replica, "command", see_command),
        )

    def __enter__(self) -> Self:
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()

    def enqueue(self) -> None:
        """Send a message as a producer. If there are many, consume one."""
        number = self._queue.last_number + 1
        self._waiting.add(number)
        self._queue.enqueue(pair.MESSAGE, self._settled, number)
        if len(self._queue.ids()) > 20:
            self._queue.discard(self._queue.ids()[:1])

    def _settled(self, number: int) -> None:
        self._waiting.discard(number)
        if self._queue.message(number) is None:
            return  # it was consumed: no replica needs it
        for name, generation in self._promised.items():
            if generation == self._arbiter.record.generation and (name, number) not in self._accepted:
                self._wrong = f"message {number} is settled, and {name!r}, in the set, has not accepted it"

    def check(self) -> None:
        """Check that everything was settled, and only when allowed.

        :raises Defect: if not.
        """
        if self._wrong:
            raise Defect(self._wrong)
        if self._waiting:
            raise Defect(f"nothing is left to wait for, and not settled are {sorted(self._waiting)}")


def _before_its_links(steps: Iterator[Step]) -> Iterator[Step]:
    for step in steps:
        if step.kind is Kind.FRAME and step.body[1:4] == _ATTACH:
            return
        yield step


def _yes(*_: object) -> bool:
    """Return true. A mock would keep each call."""
    return True


async def _primary(arbiter: pair.Arbiter) -> tuple[Broker, Queue]:
    broker = pair.member("a", await pair.in_sync_store(), arbiter, pair.Nowhere())
    assert broker.member is not None
    await broker.member.start()
    return broker, await pair.lead(broker)


TARGET = ReplicationPrimary
