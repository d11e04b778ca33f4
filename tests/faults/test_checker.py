"""The checker reports each violation, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from tests.faults.checker import check
from tests.faults.clients import decode, encode
from tests.faults.history import Fate, History, Link, Name, Receipt

LINK = Link("consumer", 1, 1)


def name(number: int) -> Name:
    return Name("producer", number)


def received(number: int, **changes: object) -> Receipt:
    facts = {"name": name(number), "queue": "q", "link": LINK, "count": 0, "at": 1.0} | changes
    return Receipt(**facts)  # type: ignore[arg-type]


def history(*receipts: Receipt, sent: int = 3, fate: Fate = Fate.ACKNOWLEDGED) -> History:
    names = [name(number) for number in range(sent)]
    return History(sent=dict.fromkeys(names, "q"), fates=dict.fromkeys(names, fate), receipts=list(receipts))


def test_what_was_acknowledged_and_received_in_order_is_fine() -> None:
    verdict = check(history(received(0), received(1), received(2)))
    assert verdict.holds
    assert (verdict.sent, verdict.acknowledged, verdict.received, verdict.duplicates) == (3, 3, 3, 0)


def test_acknowledged_and_missing_is_lost() -> None:
    verdict = check(history(received(0), received(2)))
    assert not verdict.holds
    assert verdict.lost == (name(1),)


@pytest.mark.parametrize("receipts", [[], [received(0)]])
def test_of_an_unknown_message_nothing_is_expected(receipts: list[Receipt]) -> None:
    verdict = check(history(*receipts, sent=1, fate=Fate.UNKNOWN))
    assert verdict.holds
    assert verdict.unknown == 1


def test_a_message_without_a_fate_is_unknown() -> None:
    seen = history(sent=1)
    seen.fates.clear()
    assert check(seen).unknown == 1


@pytest.mark.parametrize(
    ("receipt", "fate", "words"),
    [
        (received(7), Fate.ACKNOWLEDGED, "never sent"),
        (received(0, queue="other"), Fate.ACKNOWLEDGED, "came from other"),
        (received(0), Fate.REFUSED, "refused"),
    ],
)
def test_what_nobody_sent_there_is_unexpected(receipt: Receipt, fate: Fate, words: str) -> None:
    verdict = check(history(receipt, sent=1, fate=fate))
    assert not verdict.holds
    [complaint] = verdict.unexpected
    assert words in complaint


def confirmed(number: int, at: float, **changes: object) -> Receipt:
    return received(number, at=at, confirmed_at=at + 0.1, **changes)


def test_confirmed_once_and_in_order_is_fine() -> None:
    again = received(2, at=3.0, count=0), confirmed(2, at=4.0, count=1)
    verdict = check(history(confirmed(0, at=1.0), confirmed(1, at=2.0), *again))
    assert verdict.holds
    assert verdict.confirmed == 3


def test_a_confirmed_message_that_comes_again_is_found_and_one_that_is_confirmed_again() -> None:
    verdict = check(history(confirmed(0, at=1.0), received(0, at=2.0, count=1), sent=1))
    assert not verdict.holds
    assert (verdict.confirmed_again, verdict.confirmed_twice) == ((name(0),), ())
    verdict = check(history(confirmed(0, at=1.0), confirmed(0, at=2.0, count=1), sent=1))
    assert (verdict.confirmed_again, verdict.confirmed_twice) == ((name(0),), (name(0),))


def test_a_forced_promotion_may_bring_back_what_was_confirmed() -> None:
    seen = history(confirmed(0, at=1.0), confirmed(0, at=2.0, count=1), sent=1)
    seen.forced = [(1.05, 1.15)]
    assert check(seen).holds


def test_a_message_that_is_first_confirmed_after_a_later_one_is_late() -> None:
    late = confirmed(1, at=1.0), confirmed(0, at=2.0, count=1)
    verdict = check(history(*late, sent=2))
    assert not verdict.holds
    assert len(verdict.confirmed_late) == 1
    assert check(history(*late, sent=2, fate=Fate.UNKNOWN)).holds, "it may have been sent later"


def test_an_overtaken_message_is_disordered() -> None:
    verdict = check(history(received(1), received(0), received(2)))
    assert not verdict.holds
    assert len(verdict.disordered) == 1


@pytest.mark.parametrize(
    "late",
    [
        received(0, count=1),
        received(0, returned=True),
        received(0, link=Link("consumer", 2, 1)),
        received(0, link=Link("consumer", 1, 2)),
        received(0, link=Link("another", 1, 1)),
    ],
)
def test_redelivered_returned_or_on_another_link_it_may_be_late(late: Receipt) -> None:
    assert check(history(received(1), received(2), late)).holds


def overtaken(*, at: float) -> History:
    """One of two consumers leaves at 10 and releases message 1. The second gets it after message 2."""
    other = Link("another", 1, 1)
    receipts = [received(0, link=other), received(2, at=9.0), received(1, at=at), received(3, at=30.0)]
    seen = history(*receipts, sent=4)
    seen.leaves("q", 10.0)
    return seen


def test_what_a_consumer_that_left_had_prefetched_may_be_late() -> None:
    assert check(overtaken(at=11.0)).holds


def test_before_a_consumer_leaves_nothing_may_be_late() -> None:
    seen = overtaken(at=9.5)
    [complaint] = check(seen).disordered
    assert "number=1" in complaint
    assert not check(seen).holds


@pytest.mark.parametrize("left", [{}, {"another queue": 10.0}, {"q": 12.0}])
def test_without_a_consumer_that_left_the_queue_before_nothing_may_be_late(left: dict[str, float]) -> None:
    """One that gave back its messages in mid-stream, and does not know of it."""
    seen = overtaken(at=11.0)
    seen.left = left
    assert len(check(seen).disordered) == 1


def test_the_first_consumer_that_leaves_ends_the_order() -> None:
    for later in (5.0, 15.0):
        seen = overtaken(at=11.0)
        seen.leaves("q", later)
        assert seen.left == {"q": min(10.0, later)}
        assert check(seen).holds


def test_in_the_drain_order_holds_again() -> None:
    drain = Link("drain", 0, 1)
    seen = history(received(1, at=21.0, link=drain), received(0, at=22.0, link=drain), sent=2)
    seen.leaves("q", 10.0)
    assert check(seen).holds
    seen.drains("q", 20.0)
    assert len(check(seen).disordered) == 1


def test_what_arrives_twice_is_a_duplicate_and_no_violation() -> None:
    verdict = check(history(received(0), received(1), received(2), received(0)))
    assert verdict.holds
    assert (verdict.received, verdict.duplicates) == (3, 1)


def test_what_nobody_consumed_before_and_comes_twice_over_one_link_is_a_violation() -> None:
    again = received(0, link=Link("consumer", 1, 2))
    for receipts, twice in [([received(0), again], 0), ([received(0), again, received(0)], 1)]:
        seen = history(*receipts, sent=1, fate=Fate.UNKNOWN)
        seen.kept.add("q")
        verdict = check(seen)
        assert (len(verdict.twice), verdict.holds) == (twice, not twice)


def test_a_call_that_did_not_return_is_a_violation() -> None:
    seen = history(sent=1, fate=Fate.UNKNOWN)
    seen.hung.append(name(0))
    assert check(seen).hung == (name(0),)
    assert not check(seen).holds


def test_what_was_given_back_and_came_again_is_no_duplicate() -> None:
    verdict = check(history(received(0, returned=True), received(0), sent=1))
    assert (verdict.returned, verdict.duplicates) == (1, 0)


def test_two_members_that_served_in_one_generation_are_a_violation() -> None:
    seen = history(sent=0)
    seen.serves(1, "a")
    seen.serves(1, "a")
    assert check(seen).holds
    seen.serves(1, "b")
    assert check(seen).disputes == ("a and b both served in generation 1",)


def test_a_body_that_has_changed_is_the_message_of_nobody() -> None:
    whole = encode(name(5), 100)
    assert decode(whole) == name(5)
    for broken in (whole[:-1], whole.replace("5.", "6.", 1), "", 17):
        verdict = check(history(received(0, name=decode(broken)), sent=0))
        assert len(verdict.unexpected) == 1


def test_a_verdict_can_be_printed_as_facts() -> None:
    assert dataclasses.asdict(check(history()))["lost"] == (name(0), name(1), name(2))


def test_a_message_whose_producer_gave_it_up_may_come_late() -> None:
    seen = history(received(1), received(0), received(2))
    seen.fates[name(0)] = Fate.UNKNOWN
    assert check(seen).holds
    seen.fates[name(0)] = Fate.ACKNOWLEDGED
    assert not check(seen).holds
