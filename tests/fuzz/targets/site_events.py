"""Events of another site: each is applied or refused, and settled once. No queue has more messages than
events.

An input is a sequence of events with any values, or raw bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from unittest import mock

from broker_stub.amqp.message_format import MalformedMessageError
from broker_stub.broker import Broker
from broker_stub.queueing.exchanges import Exchange, ExchangeType, UnroutableError
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.site_state import SiteMode
from broker_stub.sites import event, inbound
from broker_stub.sites.event import Encoder, Numbers, Op
from tests.fuzz.members import OneMember
from tests.fuzz.target import Defect, Target
from tests.fuzz.values import Reader

_MESSAGES = (
    b"\x00\x53\x77\xa1\x04text",
    b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0\x01x",
    b"",
    b"\x00\x53\x70",
)
_QUEUES = "a", "b", "site.parked", "", "$management"
_STREAMS = tuple(uuid.UUID(int=number).bytes for number in (1, 2))
_MOST_EVENTS = 12
_LARGE = 1 << 56


class SiteEvents(Target):
    name = "site_events"

    def __init__(self) -> None:
        self._members = OneMember()

    def run(self, data: bytes) -> None:
        broker = self._members.make()
        reader = Reader(data, _QUEUES)
        self._members.call(lambda: self._play(broker, reader))
        self._members.loop.turn()
        broker._listener.close()
        self._members.end()

    def _play(self, broker: Broker, reader: Reader) -> None:
        broker.site.became(serves=True)
        options = {inbound.MISSING: inbound.CREATE if reader.byte() % 2 else inbound.KEEP}
        exchange = broker.addresses.declare_exchange(
            "site", ExchangeType.REPLICATION, replicate=Replicate.ALL, options=options
        )
        broker.addresses.declare("a")
        settled: list[int] = []
        taken = 0
        for number, encoded in enumerate(_events(reader)):
            taken += self._apply(exchange, encoded, number, settled)
        if sorted(settled) != sorted(set(settled)):
            raise Defect(f"settled twice: {settled}")
        for queue in broker.addresses:
            ids = list(queue.ids())
            if len(ids) > taken or sorted(ids) != ids:
                raise Defect(f"{queue.name!r} has {ids} of {taken} events")

    @staticmethod
    def _apply(exchange: Exchange, encoded: bytes, number: int, settled: list[int]) -> bool:
        try:
            exchange.apply_event(encoded, settled.append, number)  # type: ignore[misc]
        except (MalformedMessageError, UnroutableError, AddressRefusedError):
            return False
        return True

    def planted(self) -> AbstractContextManager[object]:
        """A large position raises an error in the member."""
        original = inbound.annotate

        def wrong(data: bytes, origin: event.Origin) -> bytes:
            if origin.position >= _LARGE:
                raise OverflowError(origin.position)
            return original(data, origin)

        return mock.patch.object(inbound, "annotate", wrong)

    def close(self) -> None:
        self._members.close()


def _events(reader: Reader) -> Iterator[bytes]:
    for _ in range(1 + reader.byte() % _MOST_EVENTS):
        kind = reader.byte()
        if not kind % 8:
            yield reader.take(reader.byte())
            continue
        mode = reader.choice([SiteMode.ALL, SiteMode.ENQUEUES]) if kind % 4 else reader.choice(list(SiteMode))
        queue_id = bytes(15) + bytes([reader.byte() % 3])
        encoder = Encoder(reader.choice(_QUEUES), queue_id, mode, reader.choice(_STREAMS))
        numbers = Numbers(*(reader.byte() if kind & 1 else reader.byte() << 56 for _ in range(4)))
        encoded = encoder.encode(reader.choice(list(Op)), numbers, reader.choice(_MESSAGES))
        if not kind % 16:
            at = reader.byte() % len(encoded)
            encoded = encoded[:at] + reader.take(1 + reader.byte() % 4) + encoded[at + 1 :]
        yield encoded


TARGET = SiteEvents
