"""A primary reads the arbiter again: its reaction to the answer, and to no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker_stub.election.arbiter import ArbiterMissingError, ArbiterUnavailableError
from broker_stub.election.generation import ArbiterRecord
from broker_stub.election.roles import Role
from broker_stub.member.arbiter_watch import ArbiterWatch
from broker_stub.member.member import StartRefusedError
from tests.broker_stub.clients import until
from tests.broker_stub.member.parts import Parts

HELD = ArbiterRecord(4, "mine", "ours")


class Slow:
    """An arbiter that answers when a test says so, and counts the requests."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[ArbiterRecord] = asyncio.get_running_loop().create_future()
        self.reads = 0

    async def read(self) -> ArbiterRecord:
        self.reads += 1
        return await asyncio.shield(self.answer)

    async def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        raise NotImplementedError

    async def close(self) -> None: ...


def watch(
    arbiter: Slow, reasons: list[str], superseded: Callable[[ArbiterRecord], str | None]
) -> ArbiterWatch:
    return ArbiterWatch(
        arbiter, held=lambda: HELD, superseded=superseded, step_down=reasons.append, interval=0.001
    )


async def turns() -> None:
    """Run more iterations of the loop than a second reading would need to begin."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_arbiter_that_hangs_is_asked_once_however_many_ask() -> None:
    """A caller that gives up while it hangs ends no other caller's reading."""
    arbiter, reasons = Slow(), list[str]()
    watching = watch(arbiter, reasons, lambda record: f"generation {record.generation}")
    await until(lambda: arbiter.reads == 1)
    asking = [asyncio.ensure_future(watching.check()) for _ in range(5)]
    await turns()
    asking[0].cancel()
    await turns()
    assert arbiter.reads == 1
    arbiter.answer.set_result(replace(HELD, generation=5, claim="theirs"))
    async with asyncio.timeout(30):
        await asyncio.gather(*asking[1:])
    # Calls made while it hung started another reading afterwards, too.
    assert arbiter.reads >= 2
    assert set(reasons) == {"generation 5"}
    watching.cancel()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (replace(HELD, generation=3, claim="older"), "the arbiter went back to generation 3"),
        (ArbiterRecord(9, "theirs", "another"), "holds a record of cluster another"),
        (ArbiterRecord(), "holds a record of cluster none"),
    ],
)
async def test_a_record_that_cannot_be_is_reported_once_and_deposes_nobody(
    record: ArbiterRecord, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    arbiter, reasons = Slow(), list[str]()
    arbiter.answer.set_result(record)
    watching = watch(arbiter, reasons, lambda _record: None)
    await until(lambda: arbiter.reads > 3)
    watching.cancel()
    assert caplog.text.count(said) == 1
    assert reasons == []


async def test_an_error_of_the_arbiter_changes_nothing_and_the_next_reading_counts() -> None:
    arbiter, reasons = Slow(), list[str]()
    arbiter.answer.set_exception(ArbiterUnavailableError("away"))
    watching = watch(arbiter, reasons, lambda _record: "newer")
    await until(lambda: arbiter.reads > 3)
    assert reasons == []
    arbiter.answer = asyncio.get_running_loop().create_future()
    arbiter.answer.set_result(HELD)
    await until(lambda: reasons != [])
    watching.cancel()


async def test_a_member_steps_down_when_somebody_else_won_and_takes_part_again() -> None:
    parts = Parts()
    await parts.member.start()
    await parts.member.promote()
    won = await parts.arbiter.read()
    await parts.member.check_arbiter()
    assert parts.role is Role.PRIMARY
    await parts.arbiter.compare_and_set(won, replace(won, generation=2, claim="another member's"))
    await parts.member.check_arbiter()
    assert parts.role is Role.CONNECTING
    assert "another member was made primary" in parts.host.sent_away
    await parts.member.check_arbiter()  # the watch has ended
    await parts.member.stop()


async def test_a_member_starts_without_an_answer_and_not_without_an_arbiter() -> None:
    away, missing = Parts(), Parts()
    away.arbiter.error = ArbiterUnavailableError("away")
    await away.member.start()
    assert away.role is Role.CONNECTING
    await away.member.stop()
    missing.arbiter.error = ArbiterMissingError("there is no such directory")
    with pytest.raises(StartRefusedError, match="no such directory"):
        await missing.member.start()
    await missing.member.stop()
