"""The promotion score of a member."""

from __future__ import annotations

from typing import Any

import pytest

from broker_stub.election.generation import ArbiterRecord
from broker_stub.election.roles import Role
from broker_stub.resource_agents.probe import ELIGIBLE, FRESH, PRIMARY, READY, is_eligible, score

OURS = {"cluster": "the UUID of this cluster", "number_claim": "claim"}
RECORD = ArbiterRecord(7, "claim", OURS["cluster"])


@pytest.mark.parametrize(
    ("role", "eligible", "expected"),
    [
        (Role.PRIMARY, False, "1000"),
        (Role.RECOVERING, False, "1000"),
        (Role.READY, False, "100"),
        (Role.CONNECTING, True, "50"),
        (Role.CONNECTING, False, "-INFINITY"),
        (Role.CATCHUP, True, "-INFINITY"),
        (Role.PASSIVE, True, "-INFINITY"),
    ],
)
def test_the_score_of_a_role(role: Role, eligible: bool, expected: str) -> None:
    assert score(role, eligible=eligible) == expected


@pytest.mark.parametrize(
    ("was_in_sync", "expected"),
    [(True, "50"), (False, "10")],
)
def test_a_member_that_may_just_have_crashed_is_worth_less_and_not_nothing(
    was_in_sync: bool, expected: str
) -> None:
    assert score(Role.CONNECTING, eligible=True, was_in_sync=was_in_sync) == expected


def test_the_rank_of_the_scores() -> None:
    assert 0 < int(FRESH) < int(ELIGIBLE) < int(READY) < int(PRIMARY)


@pytest.mark.parametrize(
    ("replication", "expected"),
    [
        ({"number": 7, "pending": None, "claim": None, **OURS}, True),
        ({"number": 7, "pending": None, "claim": None, **OURS, "number_claim": "another"}, False),
        ({"number": 7, "pending": None, "claim": None, **OURS, "cluster": "another"}, False),
        ({"number": 7, "pending": None, "claim": None}, False),
        ({"number": 6, "pending": None, "claim": None, **OURS}, False),
        ({"number": 6, "pending": 7, "claim": "claim"}, True),
        ({"number": 6, "pending": 7, "claim": "another"}, False),
        ({"number": None, "pending": None, "claim": None}, False),
        ({}, False),
    ],
)
def test_an_eligible_member_has_the_number_or_the_very_claim(
    replication: dict[str, Any], expected: bool
) -> None:
    assert is_eligible({"replication": replication}, RECORD) is expected
