"""Limits for an anonymous client: at each bound the member refuses with a reason, or grants no credit.

The members are processes of ``serve``; most clients write their frames by hand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from proton import Message

from broker_stub.cli.admission_options import _LIMITS
from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.threads import in_thread
from tests.broker_stub import raw_client as raw
from tests.broker_stub.clients import Client, LinkRefusedError, member
from tests.broker_stub.raw_client import RawClient

LIMIT = "amqp:resource-limit-exceeded"
ARGUMENTS = ("--role", "primary", "--accept-rate", "unlimited", "--log-level", "warning")
PAGE = Path(__file__).parents[3] / "docs" / "broker-stub.md"
KB = 1000


def arguments(limits: Mapping[str, int]) -> tuple[str, ...]:
    return (*ARGUMENTS, *(part for name, value in limits.items() for part in (name, str(value))))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A member with small limits per connection, for all tests."""
    limits = {
        "--max-sessions": 4,
        "--max-links": 6,
        "--max-unfinished": 100 * KB,
        "--max-unfinished-total": 150 * KB,
        "--credit-bytes": 20 * KB,
        "--min-idle-timeout": 2,
    }
    with in_thread(member(tmp_path_factory.mktemp("member"), *arguments(limits))) as address:
        yield address


@pytest.fixture
async def crowded(tmp_path: Path) -> AsyncIterator[Endpoint]:
    """A member with small limits for all clients together."""
    limits = {
        "--max-queues": 5,
        "--max-bytes": 200 * KB,
        "--credit-bytes": 20 * KB,
        "--max-user-connections": 3,
    }
    async with member(tmp_path, *arguments(limits)) as address:
        yield address


async def serves(address: Endpoint) -> None:
    client = await Client().connect(address)
    [outcome] = await client.send(await client.attach("sender", "s", "alive"), Message(body="x"))
    assert outcome is not None
    assert outcome.accepted
    await client.close()


async def attached(client: RawClient, frame: bytes) -> raw.Performative:
    """Attach; return the Detach of a refusal, or the Attach."""
    await client.write(frame)
    answer = await client.next(raw.ATTACH, raw.DETACH)
    if answer.code == raw.ATTACH and answer.fields[5] is None and answer.fields[6] is None:
        answer = await client.next(raw.DETACH)  # the Attach of a refusal has no terminus
    return answer


async def test_a_queue_above_the_limit_is_refused_and_the_others_stay(crowded: Endpoint) -> None:
    client = await Client().connect(crowded)
    for number in range(4):
        await client.attach("sender", f"s{number}", f"q{number}")
    await client.attach("receiver", "reply", None, dynamic=True)
    await client.attach("receiver", "r0", "q0")
    for role, address in (("sender", "q5"), ("receiver", "q6")):
        with pytest.raises(LinkRefusedError, match="the limit of 5 queues is reached") as caught:
            await client.attach(role, f"{role} {address}", address)
        assert caught.value.condition == LIMIT
    await client.close()
    await serves(crowded)  # the temporary queue has ended with its connection, and there is room for one


async def test_at_the_limit_of_bytes_all_senders_wait_and_nothing_is_lost(
    crowded: Endpoint,
) -> None:
    client = await Client().connect(crowded)
    first, other = await client.attach("sender", "s1", "a"), await client.attach("sender", "s2", "b")
    message = Message(body=b"x" * 9 * KB)
    sent = 0
    await client.send(first, message)
    while first.credit > 0:
        await client.send(first, message)
        sent += 1
        assert sent < 40
    [outcome] = await client.send(other, message)  # with the credit from before
    assert outcome.accepted
    assert sent >= 200 // 9 - 3
    # Another client gets no credit before messages have left.
    late = await Client().connect(crowded)
    waiting = await late.attach("sender", "late", "c")
    assert waiting.credit == 0
    receiver = await client.attach("receiver", "r", "a")
    receiver.grant(sent + 1)
    for _ in range(sent + 1):
        assert (await client.receive()).body == message.body
    [outcome] = await late.send(waiting, message)
    assert outcome.accepted
    await late.close()
    await client.close()


async def test_a_link_of_large_messages_has_less_credit(small: Endpoint) -> None:
    async with raw.raw_client(small) as client:
        await client.open(raw.begin(), raw.attach_sender("s", 0, "q"))
        assert (await client.next(raw.FLOW)).fields[6] == 1000
        await client.write(raw.transfer(0, 0, raw.message(5 * KB)))
        flow = await client.next(raw.FLOW)
        assert (flow.fields[5], flow.fields[6]) == (1, 3)  # three messages of 5 kB are less than 20 kB
        # A message larger than the whole limit still has a credit of one.
        await client.write(raw.transfer(0, 1, raw.message(50 * KB)))
        flow = await client.next(raw.FLOW)
        assert (flow.fields[5], flow.fields[6]) == (2, 1)


async def test_what_was_on_its_way_when_credit_was_taken_back_is_accepted(small: Endpoint) -> None:
    async with raw.raw_client(small) as client:
        await client.open(raw.begin(), raw.attach_sender("s", 0, "q"))
        await client.next(raw.FLOW)
        await client.write(*[raw.transfer(0, number, raw.message(5 * KB)) for number in range(20)])
        accepted = 0
        while accepted < 20:
            found = await client.next(raw.DISPOSITION, raw.DETACH)
            assert found.code == raw.DISPOSITION
            first, last = found.fields[1], found.fields[2]
            accepted += 1 if last is None else last - first + 1


async def test_the_open_announces_the_sessions_and_one_more_ends_the_connection(small: Endpoint) -> None:
    async with raw.raw_client(small) as client:
        opened = await client.open(*[raw.begin(channel=number) for number in range(4)])
        assert opened.fields[3] == 3  # channel-max
        for _ in range(4):
            await client.next(raw.BEGIN)
        await client.write(raw.begin(channel=4))
        assert (await client.next(raw.CLOSE)).condition == "amqp:connection:framing-error"
    await serves(small)


async def test_a_link_above_the_limit_is_refused_and_a_closed_one_makes_room(small: Endpoint) -> None:
    async with raw.raw_client(small) as client:
        await client.open(raw.begin(), raw.begin(channel=1))
        for number in range(6):
            answer = await attached(client, raw.attach_sender(f"s{number}", number, "q", channel=number % 2))
            assert answer.code == raw.ATTACH
        refused = await attached(client, raw.attach_receiver("r", 7, "q"))
        assert (refused.code, refused.condition) == (raw.DETACH, LIMIT)
        assert "6 links" in refused.description
        await client.write(raw.detach(7), raw.detach(0))
        await client.next(raw.DETACH)
        assert (await attached(client, raw.attach_receiver("r", 7, "q"))).code == raw.ATTACH


async def test_a_client_that_answers_no_refusal_is_closed(small: Endpoint) -> None:
    async with raw.raw_client(small) as client:
        await client.open(raw.begin(), *[raw.attach_sender(f"s{n}", n, "q") for n in range(13)])
        assert (await client.next(raw.CLOSE)).condition == LIMIT
    await serves(small)


async def test_unfinished_messages_of_a_connection_are_limited(small: Endpoint) -> None:
    async with raw.raw_client(small) as client:
        await client.open(raw.begin(), *[raw.attach_sender(f"s{n}", n, "q") for n in range(3)])
        for _ in range(3):
            await client.next(raw.FLOW)
        part = raw.message(60 * KB)
        await client.write(raw.transfer(0, 0, part[: 40 * KB], more=True))
        await client.write(
            raw.transfer(1, 1, part, more=True), raw.transfer(2, 2, part[: 30 * KB], more=True)
        )
        closed = await client.next(raw.DETACH)
        assert (closed.fields[0], closed.condition) == (1, LIMIT)
        # The others are finished; the rest of the dropped message affects no other link.
        await client.write(raw.transfer(1, 1, b"x" * KB, more=True), raw.transfer(1, 1, b"x"))
        await client.write(raw.transfer(0, 0, part[40 * KB :]), raw.transfer(2, 2, part[30 * KB :]))
        settled = {(await client.next(raw.DISPOSITION)).fields[1] for _ in range(2)}
        assert settled == {0, 2}


async def test_unfinished_messages_of_all_are_limited_where_there_are_most(small: Endpoint) -> None:
    part = raw.message(80 * KB)
    async with (
        raw.raw_client(small) as modest,
        raw.raw_client(small) as greedy,
        raw.raw_client(small) as last,
    ):
        clients = ((modest, part[: 20 * KB]), (greedy, part[: 60 * KB]), (last, part[: 40 * KB]))
        for client, _ in clients:
            await client.open(raw.begin(), raw.attach_sender("s", 0, "q"))
            await client.next(raw.FLOW)
        for client, sent in clients:
            await client.write(raw.transfer(0, 0, sent, more=True))
        await last.write(raw.transfer(0, 0, part[40 * KB : 58 * KB], more=True))
        await greedy.write(raw.transfer(0, 0, part[60 * KB : 75 * KB], more=True))
        closed = await greedy.next(raw.DETACH)
        assert closed.condition == LIMIT
        for client, rest in ((modest, part[20 * KB :]), (last, part[58 * KB :])):
            await client.write(raw.transfer(0, 0, rest))
            assert (await client.next(raw.DISPOSITION, raw.DETACH)).code == raw.DISPOSITION
    await serves(small)


async def test_a_short_idle_time_out_is_answered_with_a_close_that_names_it(small: Endpoint) -> None:
    async with raw.raw_client(small) as client:
        await client.open(idle_ms=1999)
        closed = await client.next(raw.CLOSE)
        assert closed.condition == "amqp:invalid-field"
        assert closed.description == "idle-time-out is 1999 ms, and the least is 2000 ms"
    for accepted in (None, 0, 2000):
        async with raw.raw_client(small) as client:
            await client.open(raw.begin(), idle_ms=accepted)
            assert (await client.next(raw.BEGIN, raw.CLOSE)).code == raw.BEGIN


async def test_anonymous_clients_have_a_limit_of_connections_that_are_up(
    crowded: Endpoint,
) -> None:
    for _ in range(2):
        clients = [await Client().connect(crowded) for _ in range(3)]
        for client in clients:
            await client.begun.wait()
        refused = await (await Client().connect(crowded)).end()
        assert refused.condition is not None
        assert refused.condition.name == LIMIT
        assert refused.condition.description == "anonymous clients have 3 connections, which is the limit"
        for client in clients:
            await client.close()


async def test_the_page_has_every_limit_with_its_default() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `--")]
    for name, _kind, default, _text in _LIMITS:
        [row] = [row for row in rows if row.startswith(f"| `{name}`")]
        shown = row.split("|")[2].replace(",", "")
        assert str("none" if default is None else default) in shown, row
