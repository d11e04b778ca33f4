"""The library of faults: their kinds, their random choice, and possible losses by a forced promotion."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from broker_stub.election.generation import ArbiterRecord, GenerationState
from broker_stub.management_client import MemberStatus
from broker_stub.member.forcing import forced_loss
from tests.faults.history import History
from tests.faults.schedule import schedule
from tests.hosts import faults
from tests.hosts.cluster import MEMBERS
from tests.hosts.faults import FAULTS


def test_among_two_hundred_faults_are_twenty_of_each_kind() -> None:
    steps = itertools.islice(schedule(1, list(FAULTS)), 200)
    counts = Counter(step.fault for step in steps)
    assert set(counts) == set(FAULTS)
    assert min(counts.values()) >= 20


def test_partitions_are_partial_and_never_take_the_manager() -> None:
    kinds = set()
    for seed in range(200):
        one_way = faults._one_way(random.Random(seed))
        assert one_way
        assert not {(target, source) for source, target in one_way} & set(one_way)
        both_ways = faults._both_ways(random.Random(seed))
        assert {(target, source) for source, target in both_ways} == set(both_ways)
        hosts = {host for pair in one_way + both_ways for host in pair}
        assert hosts <= set(faults._EVERYBODY)
        kinds.add(len({source for source, _target in both_ways if source in MEMBERS}))
    assert kinds >= {1, 2, 3}


@pytest.mark.parametrize(
    ("state", "record", "since"),
    [
        # Eligible: only later settlements of the old primary may be lost.
        (GenerationState(generation=7), ArbiterRecord(7, "a"), 99.0),
        # Behind: possible losses start at the last observation before its generation ended.
        (GenerationState(generation=5), ArbiterRecord(7, "a"), 50.0),
        (GenerationState(generation=6), ArbiterRecord(7, "a"), 60.0),
        # In catch-up it has no data of its own: everything may be lost.
        (GenerationState(generation=None), ArbiterRecord(7, "a"), 0.0),
    ],
)
def test_from_when_a_forced_promotion_may_lose_follows_from_its_warning(
    state: GenerationState, record: ArbiterRecord, since: float
) -> None:
    history = History(generations={4: 40.0, 5: 50.0, 6: 60.0, 7: 70.0})
    facts = {"warning": forced_loss(state, record)}
    status = MemberStatus("m", "primary", 8, None, 0, facts)
    assert faults.may_have_lost_since(status, 99.0, history) == since
