"""The dials of a client: synthetic ones, and a real client's against the counts of its peers."""

from __future__ import annotations

import asyncio
import gzip
import time
from pathlib import Path

import pytest

from haclient import aio, telemetry
from haclient.errors import HaclientError
from haclient.testing.peers.listening import Peer, bound, listening
from tests.brokers.dials import (
    Dial,
    NextDial,
    most_in_a_second,
    next_dial,
    read,
    refused,
    smallest_gap,
)

NEVER = float("inf")


def test_the_first_dial_after_the_primary_accepts_counts_and_the_handshake_has_those_after_it() -> None:
    dials = [
        Dial("b:1", 9.0, 9.25, False),
        Dial("a:1", 10.25, 10.5, False),
        Dial("b:1", 10.5, 10.75, False),
        Dial("b:1", 11.0, 11.5, True),
    ]
    assert next_dial(dials, "b:1", lost=8.0, since=10.0, until=NEVER) == NextDial(0.5, 1.0)


def test_a_dial_that_is_on_its_way_when_the_primary_accepts_counts_as_none() -> None:
    """Such a dial is a SYN repeated by the kernel, or a connection that a member parked."""
    dials = [Dial("a:1", 9.5, 10.5, False), Dial("b:1", 4.0, 10.25, True)]
    assert next_dial(dials, "b:1", lost=8.0, since=10.0, until=NEVER) == NextDial(0.0, 0.25)


def test_a_client_that_is_back_before_the_judge_knows_that_the_primary_accepts_lost_nothing() -> None:
    dials = [Dial("b:1", 7.0, 7.5, True), Dial("b:1", 9.75, 9.875, True)]
    assert next_dial(dials, "b:1", lost=8.0, since=10.0, until=NEVER) == NextDial(0.0, 0.125)


def test_a_dial_that_fails_just_as_the_primary_accepts_does_not_count() -> None:
    dials = [Dial("b:1", 9.75, 10.25, False), Dial("b:1", 10.75, 11.0, True)]
    assert next_dial(dials, "b:1", lost=8.0, since=10.0, until=NEVER) == NextDial(0.75, 0.25)


@pytest.mark.parametrize(
    "dials",
    [
        [],
        [Dial("b:1", 10.5, 11.0, False)],
        [Dial("a:1", 10.5, 11.0, True)],
        [Dial("b:1", 7.0, 7.5, True)],
        [Dial("b:1", 20.5, 21.0, True)],
    ],
)
def test_a_client_that_does_not_come_back_there_before_the_next_outage_has_none(dials: list[Dial]) -> None:
    assert next_dial(dials, "b:1", lost=8.0, since=10.0, until=20.0) is None


def test_only_dials_that_do_not_connect_while_nobody_serves_are_counted_for_each_address() -> None:
    dials = [
        Dial("a:1", 9.5, 9.6, False),
        Dial("a:1", 10.0, 10.1, False),
        Dial("b:1", 10.5, 10.6, False),
        Dial("a:1", 11.0, 11.1, False),
        Dial("b:1", 11.5, 12.1, True),
        Dial("a:1", 12.0, 12.1, False),
    ]
    assert refused(dials, 10.0, 12.0) == [[10.0, 11.0], [10.5]]


def test_a_second_is_any_second_and_ends_before_its_last_moment() -> None:
    assert most_in_a_second([0.0, 0.75, 1.0, 1.5, 1.74]) == 4
    assert most_in_a_second([0.0, 1.0]) == 1
    assert most_in_a_second([]) == 0
    assert smallest_gap([0.0, 0.75, 1.0]) == 0.25
    assert smallest_gap([1.0]) is None


class _ClosesAtOnce(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _closes_at_once(_peer: Peer) -> _ClosesAtOnce:
    return _ClosesAtOnce()


async def test_the_telemetry_of_a_client_has_each_dial_that_its_peer_saw(tmp_path: Path) -> None:
    with bound() as nobody:
        refusing = Peer(*nobody.getsockname())
        began = before = time.monotonic()
        async with listening(_closes_at_once) as peer:
            url = f"amqp://{refusing.address},{peer.address}/?telemetry={tmp_path}&max_attempts=6"
            with pytest.raises(HaclientError):
                await aio.connect(url)
        assert telemetry.flush()
        dials = read(tmp_path)
        there = [dial for dial in dials if dial.endpoint == peer.address]
        assert len(dials) == 6
        assert len(there) == len(peer.accepted) > 0
        assert began <= there[0].began
        for dial, accepted in zip(there, peer.accepted, strict=True):
            assert dial.began <= dial.ended
            assert before <= accepted <= dial.ended
            before = dial.ended
        assert {dial.endpoint for dial in dials} == {refusing.address, peer.address}
        assert not any(dial.connected for dial in dials)


def test_a_file_that_was_rotated_and_compressed_is_read_too(tmp_path: Path) -> None:
    line = (
        '{"type": "haclient.connection.attempt", "data": {"server.address": "a", "server.port": 1,'
        ' "haclient.monotonic": 3.5, "haclient.attempt.duration": 0.5}}\n'
    )
    with gzip.open(tmp_path / "first.jsonl.gz", "wt") as file:
        file.write(line)
    (tmp_path / "second.jsonl").write_text(line.replace("3.5", "1.5") + '{"type": "other", "data": {}}\n')
    assert read(tmp_path) == [Dial("a:1", 1.0, 1.5, True), Dial("a:1", 3.0, 3.5, True)]
