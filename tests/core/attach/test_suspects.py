"""The link that ends its connection repeatedly is found, and no other link is blamed."""

from __future__ import annotations

import proton
import pytest

from haclient.core.attach.suspects import Suspects

DECODE_ERROR = proton.Condition("amqp:decode-error", "what is this?")
INTERNAL_ERROR = proton.Condition("amqp:internal-error")


def ends(
    suspects: Suspects[str],
    unanswered: str,
    condition: proton.Condition | None = DECODE_ERROR,
    now: float = 0.0,
    *,
    by_peer: bool = True,
) -> str | None:
    return suspects.session_ended(unanswered.split(), condition, now, by_peer=by_peer)


def test_a_link_that_was_alone_three_times_is_guilty() -> None:
    suspects = Suspects[str](120.0)
    assert [ends(suspects, "bad") for _ in range(3)] == [None, None, "bad"]
    assert [ends(suspects, "bad") for _ in range(3)] == [None, None, "bad"]


def test_an_answer_acquits() -> None:
    suspects = Suspects[str](120.0)
    ends(suspects, "slow")
    ends(suspects, "slow")
    suspects.acquit("slow")
    assert [ends(suspects, "slow") for _ in range(2)] == [None, None]


def test_each_link_is_counted_for_itself() -> None:
    suspects = Suspects[str](120.0)
    found = [ends(suspects, name) for name in ("a", "b", "a", "b", "a")]
    assert found == [None, None, None, None, "a"]


@pytest.mark.parametrize(
    "condition", [None, INTERNAL_ERROR, proton.Condition("amqp:resource-limit-exceeded")]
)
def test_a_broker_in_trouble_has_the_time_of_a_refused_link(condition: proton.Condition | None) -> None:
    suspects = Suspects[str](120.0)
    found = [ends(suspects, "bad", condition, now) for now in (1000.0, 1001.0, 1002.0, 1119.9, 1120.0)]
    assert found == [None, None, None, None, "bad"]


def test_twice_is_not_again_and_again_however_long_it_takes() -> None:
    suspects = Suspects[str](120.0)
    assert [ends(suspects, "bad", None, now) for now in (0.0, 500.0)] == [None, None]


@pytest.mark.parametrize(
    ("name", "by_peer"),
    [
        ("amqp:connection:forced", True),
        ("amqp:connection:redirect", True),
        ("amqp:resource-limit-exceeded", False),  # the heartbeat
        ("haclient:stale-primary", False),
        ("haclient:cut", False),
    ],
)
def test_some_ends_accuse_nobody(name: str, *, by_peer: bool) -> None:
    suspects = Suspects[str](0.0)
    condition = proton.Condition(name)
    assert [ends(suspects, "link", condition, by_peer=by_peer) for _ in range(9)] == [None] * 9
    assert [ends(suspects, "a b", condition, by_peer=by_peer) for _ in range(9)] == [None] * 9
    assert not suspects.one_by_one


def test_of_several_nobody_is_accused_but_they_are_attached_one_by_one() -> None:
    suspects = Suspects[str](120.0)
    assert ends(suspects, "a b c") is None
    assert not suspects.one_by_one
    assert ends(suspects, "b c") is None
    assert suspects.one_by_one
    assert [ends(suspects, "b") for _ in range(3)] == [None, None, "b"]
    assert suspects.one_by_one
    assert ends(suspects, "") is None
    assert not suspects.one_by_one
