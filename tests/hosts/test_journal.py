"""Histories in files: handwritten ones with one violation each, and ones written by clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import Verdict, check
from tests.faults.history import Fate, History, Link, Name, Receipt
from tests.hosts.journal import Journal, read


def line(kind: str, number: int, **facts: Any) -> str:
    named = {"kind": kind, "time": 1.0, "process": "p", "id": ["p/producer", number], **facts}
    return json.dumps(named) + "\n"


def sent(number: int, fate: str = "acknowledged", at: float = 1.0) -> str:
    return line("send", number, queue="q") + line("end", number, fate=fate, time=at)


def received(number: int, *, count: int = 0, queue: str = "q", serial: int = 1, at: float = 1.0) -> str:
    return line("receive", number, queue=queue, link=["p/consumer", serial, 1], count=count, time=at)


def judged(folder: Path, *files: str, forced: tuple[float, float] | None = None) -> Verdict:
    paths = [folder / f"{number}.jsonl" for number, _text in enumerate(files)]
    for path, text in zip(paths, files, strict=True):
        path.write_text(text)
    history = read(paths)
    if forced is not None:
        history.forced.append(forced)
    return check(history)


def test_what_is_sent_by_one_process_and_received_by_another_is_fine(tmp_path: Path) -> None:
    verdict = judged(tmp_path, sent(0) + sent(1), received(0) + received(1))
    assert verdict.holds
    assert (verdict.acknowledged, verdict.received, verdict.duplicates) == (2, 2, 0)


def test_a_planted_loss_is_found(tmp_path: Path) -> None:
    verdict = judged(tmp_path, sent(0) + sent(1), received(1))
    assert verdict.lost == (Name("p/producer", 0),)
    assert not verdict.holds


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("", "never sent"),
        (sent(0, "refused"), "refused"),
        (line("send", 0, queue="other"), "was sent to other"),
    ],
)
def test_a_planted_message_that_nobody_sent_is_found(first: str, words: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, first, received(0))
    assert words in verdict.unexpected[0]
    assert not verdict.holds


def test_a_planted_duplicate_is_counted_and_no_violation(tmp_path: Path) -> None:
    verdict = judged(tmp_path, sent(0), received(0) + received(0, serial=2))
    assert (verdict.duplicates, verdict.holds) == (1, True)


def test_a_planted_second_copy_in_the_store_is_found(tmp_path: Path) -> None:
    keep = json.dumps({"kind": "keep", "time": 1.0, "process": "p", "queues": ["q"]}) + "\n"
    verdict = judged(tmp_path, keep + sent(0), received(0) + received(0))
    assert (len(verdict.twice), verdict.holds) == (1, False)


def test_a_planted_disorder_is_found_unless_its_producer_gave_the_message_up(tmp_path: Path) -> None:
    swapped = received(1) + received(0)
    assert len(judged(tmp_path, sent(0) + sent(1), swapped).disordered) == 1
    assert judged(tmp_path, sent(0, "unknown") + sent(1), swapped).holds
    assert len(judged(tmp_path, sent(0) + sent(1, "unknown"), swapped).disordered) == 1


def test_what_a_consumer_of_another_process_gave_back_may_be_late_from_when_it_left(
    tmp_path: Path,
) -> None:
    ends = sent(0) + sent(1)
    leave = json.dumps({"kind": "leave", "time": 10.0, "process": "other", "queue": "q"}) + "\n"
    for late, disordered in ((9.5, 1), (10.5, 0)):
        receipts = received(1, at=9.0) + received(0, at=late)
        assert len(judged(tmp_path, ends + receipts, leave).disordered) == disordered
        assert len(judged(tmp_path, ends + receipts, "").disordered) == 1


def test_a_loss_counts_apart_only_within_the_time_of_a_forced_promotion(tmp_path: Path) -> None:
    text = sent(0, at=5.0) + sent(1, at=20.0)
    assert len(judged(tmp_path, text).lost) == 2
    verdict = judged(tmp_path, text, forced=(4.0, 6.0))
    assert verdict.lost_to_force == (Name("p/producer", 0),)
    assert verdict.lost == (Name("p/producer", 1),)
    assert not verdict.holds
    assert judged(tmp_path, text + received(1), forced=(4.0, 6.0)).holds


def test_two_processes_that_saw_different_primaries_of_a_generation_are_found(tmp_path: Path) -> None:
    def serve(member: str) -> str:
        return json.dumps({"kind": "serve", "generation": 3, "member": member}) + "\n"

    assert judged(tmp_path, serve("a"), serve("a")).holds
    assert len(judged(tmp_path, serve("a"), serve("b")).disputes) == 1


def test_a_planted_call_that_hangs_is_found(tmp_path: Path) -> None:
    assert not judged(tmp_path, line("send", 0, queue="q") + line("hang", 0)).holds


def test_of_a_client_that_was_killed_its_last_whole_line_counts(tmp_path: Path) -> None:
    verdict = judged(tmp_path, sent(0) + line("send", 1, queue="q")[:-9], received(0))
    assert (verdict.sent, verdict.holds) == (1, True)


def test_a_line_that_nobody_writes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        judged(tmp_path, json.dumps({"kind": "something"}) + "\n")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.jsonl"
    with path.open("w") as file:
        journal = Journal(file, "client")
        for number, fate in enumerate(Fate):
            journal.sends(Name("a", number), "q")
            journal.ends(Name("a", number), fate, 10.0 + number)
        for number in range(2):
            journal.receives(Receipt(Name("a", number), "q", Link("c", 1, number), number, 20.0 + number))
        journal.accepts(journal.receipts[1])
        journal.returns(journal.receipts[0])
        journal.hangs(Name("a", 2))
        journal.keeps("k")
        journal.leaves("q", 30.0)
        journal.drains("q", 40.0)
        journal.serves(1, "m")
        journal.impatient["timed out"] += 3
        journal.close()
    found = read([path])
    facts = [field for field in History.__dataclass_fields__ if field not in {"forced", "generations"}]
    assert {name: getattr(found, name) for name in facts} == {name: getattr(journal, name) for name in facts}
    assert check(found) == check(journal)
