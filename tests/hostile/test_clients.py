"""Hostile clients act as described, and the pair and its honest clients are not affected."""

from __future__ import annotations

import asyncio
import random

import pytest

from haclient.cluster_url.endpoint import Endpoint
from tests.hostile import messages
from tests.hostile.broker import hostile_brokers
from tests.hostile.clients import pair
from tests.hostile.clients.acts import ACTS, Ground, perform

_LOG = """info: a line
Traceback (most recent call last):
  File "a.py", line 1, in b
KeyError: 'x'
more
Traceback (most recent call last):
  File "a.py", line 1, in b
KeyError: 'x'
"""


@pytest.mark.parametrize("name", ACTS)
async def test_an_act_ends_as_connections_do(name: str) -> None:
    """Against a correct broker, an act that raises any other error is itself wrong."""
    async with hostile_brokers(1, ()) as brokers:
        peer = brokers.peers[0]
        ground = Ground(Endpoint(peer.host, peer.port), ("q", "r"), "shared")
        ends = await asyncio.gather(*(perform(name, ground, random.Random(seed)) for seed in range(2)))
    assert len(ends) == 2
    assert brokers.connections >= 2


def test_messages_are_the_same_for_a_seed() -> None:
    for make in (messages.extreme, messages.malformed):
        assert make(random.Random(7)) == make(random.Random(7))
        assert len({make(random.Random(seed)) for seed in range(20)}) > 10


def test_each_kind_of_traceback_in_a_log_is_found_once() -> None:
    (found,) = pair.tracebacks("member-1", _LOG)
    assert found.startswith("member-1 logged 2 times: KeyError: 'x'")
    assert pair.tracebacks("member-1", "info: no such thing\n") == []


@pytest.mark.slow
async def test_a_pair_bears_hostile_clients_for_some_seconds() -> None:
    outcome = await pair.run(31, 6.0)
    assert outcome.defects == [], str(outcome)
    assert outcome.ledger.settled
    assert outcome.ends.total() > 10
