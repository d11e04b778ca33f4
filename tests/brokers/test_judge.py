"""The judge: histories written by hand, each with one violation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.dials import Dial
from tests.brokers.judge import Judgement, Outage, end_of_outage, judge, read
from tests.faults.clients import encode
from tests.faults.history import Name

KILL = Outage(asked=9.75, began=10.0, accepting=11.75, ended=12.0, endpoint="b:1", over=12.5)
"""The primary dies at 10, and a new one accepts at 11.75. The judge knows it at 12."""


def line(kind: str, number: int, *, process: str = "p", **facts: Any) -> str:
    named = {"kind": kind, "time": 1.0, "process": process, "id": ["p", number], **facts}
    return json.dumps(named) + "\n"


def sent(number: int, *, queue: str = "live", fate: str = "acknowledged", at: float = 1.0) -> str:
    return line("send", number, queue=queue) + line("end", number, fate=fate, time=at)


def received(number: int, *, at: float = 1.0, count: int = 0) -> str:
    return line("receive", number, process="c", queue="live", link=["c", 0, 0], count=count, time=at)


def failed(error: str, *, after: float, limit: float, call: str = "send") -> str:
    return line("fail", 0, call=call, error=error, text="the reason", after=after, limit=limit)


def event(name: str, at: float, *, process: str = "c") -> str:
    return line("event", 0, process=process, event=name, time=at)


def judged(
    folder: Path, *lines: str, kept: tuple[int, ...] = (), live: tuple[int, ...] = (), detects: bool = True
) -> Judgement:
    """Judge these lines, with these messages still stored."""
    path = folder / "journal.jsonl"
    path.write_text("".join(lines))
    evidence = read([path], kept="kept")
    for queue, numbers in (("kept", kept), ("live", live)):
        evidence.drains(queue, (encode(Name("p", number), 7) for number in numbers), 99.0)
    return judge(evidence, [KILL], detects_duplicates=detects)


def test_messages_that_are_received_or_still_stored_are_fine(tmp_path: Path) -> None:
    judgement = judged(tmp_path, sent(0), sent(1, queue="kept"), sent(2), received(0), kept=(1,), live=(2,))
    assert judgement.wrong == []
    assert (judgement.sent, judgement.settled, judgement.missing, judgement.doubled) == (3, 3, 0, 0)


def test_a_planted_missing_message_is_found(tmp_path: Path) -> None:
    judgement = judged(tmp_path, sent(0), sent(1), received(1))
    assert judgement.missing == 1
    assert judgement.wrong == ["missing: 1, as p 0"]


@pytest.mark.parametrize("detects", [True, False])
def test_a_planted_message_that_is_stored_twice_is_found(tmp_path: Path, detects: bool) -> None:
    judgement = judged(tmp_path, sent(0, queue="kept"), kept=(0, 0), detects=detects)
    assert (judgement.doubled, judgement.redelivered) == (1, 0)
    assert judgement.wrong == (["stored twice: 1, as p 0"] if detects else [])


def test_a_message_that_comes_twice_without_a_reason_was_stored_twice(tmp_path: Path) -> None:
    judgement = judged(tmp_path, sent(0), received(0, at=3.0), received(0, at=4.0))
    assert (judgement.doubled, judgement.redelivered) == (1, 0)
    assert judgement.wrong


def test_a_message_of_which_the_broker_says_that_it_is_no_first_delivery_is_redelivered(
    tmp_path: Path,
) -> None:
    judgement = judged(tmp_path, sent(0), received(0, at=3.0), received(0, at=4.0, count=1))
    assert (judgement.doubled, judgement.redelivered, judgement.wrong) == (0, 1, [])


def test_a_message_that_comes_again_after_an_outage_is_redelivered(tmp_path: Path) -> None:
    judgement = judged(tmp_path, sent(0), received(0, at=9.0), received(0, at=13.0))
    assert (judgement.doubled, judgement.redelivered, judgement.wrong) == (0, 1, [])


@pytest.mark.parametrize(
    ("first", "again", "doubled"), [(12.4, 13.0, 0), (9.0, 9.8, 0), (12.6, 13.0, 1), (9.0, 9.7, 1)]
)
def test_only_while_connections_may_be_lost_is_there_a_reason_to_redeliver(
    tmp_path: Path, first: float, again: float, doubled: int
) -> None:
    judgement = judged(tmp_path, sent(0), received(0, at=first), received(0, at=again))
    assert (judgement.doubled, judgement.redelivered) == (doubled, 1 - doubled)


def test_what_a_client_says_of_its_own_loss_excuses_nothing(tmp_path: Path) -> None:
    lost = event("Disconnected", 3.2) + event("Reconnected", 3.4)
    judgement = judged(tmp_path, sent(0), lost, received(0, at=3.0), received(0, at=4.0))
    assert (judgement.doubled, judgement.redelivered) == (1, 0)
    assert judgement.wrong == ["stored twice: 1, as p 0"]


def test_dials_of_each_program_are_measured_by_what_the_judge_saw(tmp_path: Path) -> None:
    """The second fault ends at the first fault's primary, and one program never returns to it."""
    path = tmp_path / "journal.jsonl"
    path.touch()
    evidence = read([path], kept="kept")
    refused = [Dial("a:1", at, at + 0.01, False) for at in (10.0, 10.5, 10.75, 11.25)]
    evidence.dials = {
        "p": [*refused, Dial("b:1", 12.0, 12.25, True)],
        "c": [Dial("b:1", 11.5, 12.0, True)],
    }
    second = Outage(asked=19.75, began=20.0, accepting=21.0, ended=22.0, endpoint="b:1", over=22.0)
    judgement = judge(evidence, [KILL, second], detects_duplicates=True)
    assert judgement.next_dials == [0.25, 0.0]
    assert judgement.handshakes == [0.25, 0.25]
    assert (judgement.most_dials, judgement.smallest_gap) == (3, 0.25)


def test_a_message_that_was_refused_and_arrives_is_found(tmp_path: Path) -> None:
    judgement = judged(tmp_path, sent(0, fate="refused"), received(0))
    assert "was refused" in judgement.wrong[0]


def test_a_message_without_an_outcome_at_the_end_is_found(tmp_path: Path) -> None:
    judgement = judged(tmp_path, line("send", 0, queue="live"))
    assert judgement.wrong == ["no outcome at the end: 1, as p 0"]


def test_an_error_that_is_not_allowed_is_found(tmp_path: Path) -> None:
    judgement = judged(tmp_path, failed("ConnectionGaveUp", after=0.4, limit=60.0))
    assert judgement.errors == {"ConnectionGaveUp": 1}
    assert judgement.wrong == ["p: send: ConnectionGaveUp: the reason"]


@pytest.mark.parametrize("error", ["SendTimeout", "MessageNotAccepted", "StaleDelivery", "Timeout"])
def test_an_error_that_is_allowed_is_counted(tmp_path: Path, error: str) -> None:
    judgement = judged(tmp_path, failed(error, after=1.01, limit=1.0))
    assert (judgement.errors, judgement.wrong) == ({error: 1}, [])


@pytest.mark.parametrize(("after", "words"), [(0.4, "after 0.400 of 60 s"), (95.0, "with a limit of 60 s")])
def test_a_call_that_gives_up_early_or_late_is_found(tmp_path: Path, after: float, words: str) -> None:
    judgement = judged(tmp_path, failed("SendTimeout", after=after, limit=60.0))
    assert words in judgement.wrong[0]


def test_the_outage_ends_with_the_first_settlement_and_the_clients_share_begins_with_the_primary(
    tmp_path: Path,
) -> None:
    """The outcome at 10.01 was in flight when the primary died."""
    times = (9.0, 10.01, 13.5, 13.6)
    judgement = judged(tmp_path, *(sent(number, at=at) for number, at in enumerate(times)), live=(0, 1, 2, 3))
    assert (judgement.outages, judgement.shares) == ([3.5], [1.5])


def test_a_client_that_was_faster_than_the_judge_has_no_share(tmp_path: Path) -> None:
    times = (9.0, 11.9, 12.2)
    judgement = judged(tmp_path, *(sent(number, at=at) for number, at in enumerate(times)), live=(0, 1, 2))
    assert (judgement.outages, judgement.shares) == ([1.9], [0.0])


def test_a_producer_that_reports_at_its_end_is_measured_by_what_arrives(tmp_path: Path) -> None:
    silent = line("event", 0, event="OutcomesAtEnd")
    fates = "".join(sent(number, at=50.0) for number in range(2))
    judgement = judged(tmp_path, silent, fates, received(0, at=9.0), received(1, at=14.0))
    assert judgement.outages == [4.0]


def test_nothing_that_is_settled_afterwards_has_no_end() -> None:
    assert end_of_outage([8.0, 9.0], KILL) is None
