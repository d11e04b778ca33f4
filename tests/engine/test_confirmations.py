"""Links with rcv-settle-mode second: the sender settles accepted deliveries when its owner says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from proton import Described, ubyte, uint, ulong

from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.wire import attach_frame
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState
from tests.broker_stub.raw_client import (
    ATTACH,
    DISPOSITION,
    TRANSFER,
    RawClient,
    begin,
    credit,
    frame,
    raw_client,
)
from tests.engine.pair import Owner, pair, serving
from tests.engine.wire.test_attach_frame import fields

SECOND = ubyte(1)
STATE = Described(ulong(0x24), [])


def attach(name: str, *tail: Any, mode: Any = SECOND) -> bytes:
    """Encode the Attach of a receiver."""
    ends = [Described(ulong(0x28), ["q"]), Described(ulong(0x29), [])]
    return frame(ATTACH, [name, uint(0), True, None, mode, *ends, *tail])


def accept(first: int, last: int, *, settled: bool = False) -> bytes:
    return frame(DISPOSITION, [True, uint(first), uint(last), settled, STATE])


async def attached(client: RawClient, *parts: bytes) -> Sequence[Any]:
    """Open, begin and attach; return the fields of the answer to the Attach."""
    await client.open(begin(), *parts)
    while (found := await client.read_frame())[6] != ATTACH:
        pass
    return fields((len(found) + 4).to_bytes(4) + found)


async def sending(owner: Owner, count: int) -> Any:
    """Send the first messages of the link, on the available credit."""
    await owner.until(lambda: owner.links and owner.links[0].credit >= count)
    for number in range(count):
        owner.links[0].send(b"%d" % number, number)  # type: ignore[union-attr]
    return owner.links[0]


async def test_a_disposition_is_settled_when_its_owner_confirms_it_and_not_before() -> None:
    async with serving() as (peer, owners), raw_client(Endpoint(peer.host, peer.port)) as client:
        answer = await attached(client, attach("r"), credit(0, 10))
        assert answer[4] == 1
        owner = owners[0]
        link = await sending(owner, 3)
        await client.skip(TRANSFER, 3)
        await client.write(accept(0, 1))  # a batch
        await owner.until(lambda: len(owner.given) == 2)
        assert [(token, outcome) for _, _, token, outcome in owner.given] == [(0, ACCEPTED), (1, ACCEPTED)]
        assert owner.outcomes == []
        link.send(b"next", 3)
        assert (await client.read()).code == TRANSFER  # and no disposition before it
        for _, delivery, _, outcome in owner.given:
            link.confirm(delivery, outcome.state)
            link.confirm(delivery, outcome.state)  # the second time there is nothing to settle
        settled: set[int] = set()
        while len(settled) < 2:
            found = await client.next(DISPOSITION)
            role, first, last, is_settled, state = [*found.fields, None][:5]
            assert (role, is_settled, state.descriptor) == (False, True, 0x24)
            settled |= set(range(first, (first if last is None else last) + 1))
        assert settled == {0, 1}


async def test_what_the_peer_settles_itself_is_given_once_and_its_memory_kept_until_confirmed() -> None:
    async with serving() as (peer, owners), raw_client(Endpoint(peer.host, peer.port)) as client:
        await attached(client, attach("r"), credit(0, 100))
        owner = owners[0]
        link = await sending(owner, 1)
        await client.skip(TRANSFER, 1)
        await client.write(accept(0, 0), accept(0, 0, settled=True))
        await owner.until(lambda: owner.given)
        for number in range(20):  # none of them may get the memory of the first one
            link.send(b"x", f"later {number}")
        await client.skip(TRANSFER, 20)
        await client.write(accept(1, 20))
        await owner.until(lambda: len(owner.given) == 21)
        deliveries = [delivery for _, delivery, _, _ in owner.given]
        assert len(set(deliveries)) == 21
        link.confirm(deliveries[0], OutcomeState.ACCEPTED)
        link.confirm(deliveries[7], OutcomeState.ACCEPTED)
        found = await client.next(DISPOSITION)
        assert found.fields[1] == 7


async def test_without_the_mode_or_where_it_is_refused_all_is_as_in_mode_first() -> None:
    async with serving() as (peer, owners):
        for mode, confirms in ((None, True), (SECOND, False)):
            async with raw_client(Endpoint(peer.host, peer.port)) as client:
                owners[-1].confirms = confirms
                answer = await attached(client, attach("r", mode=mode), credit(0, 10))
                assert not answer[4]
                owner = owners[-1]
                await sending(owner, 1)
                await client.skip(TRANSFER, 1)
                await client.write(accept(0, 0))
                await owner.until(lambda owner=owner: owner.outcomes)  # type: ignore[misc]
                assert owner.given == []


@pytest.mark.parametrize("cut", [0, 1, 9, 60])
async def test_a_map_is_read_and_answered_also_when_the_attach_arrives_in_pieces(cut: int) -> None:
    asked = {b"one": STATE, b"two": None, "three": STATE}
    async with serving() as (peer, owners), raw_client(Endpoint(peer.host, peer.port)) as client:
        await client.open()
        owner = owners[0]
        owner.states = {b"one": 0x24}
        sent = begin() + attach("r", asked)
        if cut:
            await client.write(sent[:-cut])
            await owner.until(lambda: owner.session)
        await client.write(sent[-cut:] if cut else sent)
        while (found := await client.read_frame())[6] != ATTACH:
            pass
        answer = fields((len(found) + 4).to_bytes(4) + found)
        assert {tag: state.descriptor for tag, state in answer[7].items()} == {b"one": 0x24}
        assert not answer[8]
        (link,) = owner.links
        assert attach_frame.states(link.peer_unsettled) == {b"one": 0x24, b"two": None}


async def test_frames_around_a_changed_attach_are_as_they_were() -> None:
    async with serving() as (peer, owners), raw_client(Endpoint(peer.host, peer.port)) as client:
        await attached(client, attach("r"), credit(0, 10))
        owner = owners[0]
        link = await sending(owner, 5)
        owner.states = {number.to_bytes(16): 0x24 for number in range(50)}
        await client.write(
            frame(
                ATTACH,
                ["s", uint(1), True, None, SECOND, Described(ulong(0x28), ["q"]), Described(ulong(0x29), [])],
            )
        )
        await owner.until(lambda: len(owner.links) == 2)
        link.send(b"after", "after")
        seen = [(await client.read_frame())[6] for _ in range(7)]
        assert seen == [TRANSFER] * 5 + [ATTACH, TRANSFER]


async def test_a_map_larger_than_the_peers_frames_is_cut() -> None:
    async with pair(server={"max_frame_size": 512}) as both:
        asked = {number.to_bytes(16): 0x24 for number in range(100)}
        _, made = await both.receiver(confirm=True, asked=asked)
        found = attach_frame.states(made.peer_unsettled)
        assert 10 < len(found) < 25
        assert list(found) == list(asked)[: len(found)]


@pytest.mark.parametrize(
    "outcome",
    [
        ACCEPTED,
        RELEASED,
        Outcome(OutcomeState.REJECTED, "app:bad", "not a number"),
        Outcome(OutcomeState.MODIFIED, delivery_failed=True, undeliverable_here=True),
    ],
    ids=str,
)
async def test_every_outcome_is_confirmed_to_whoever_gave_it(outcome: Outcome) -> None:
    async with pair() as both:
        receiver, sender = await both.receiver(confirm=True)
        assert receiver.is_confirmed
        sender.set_tag_scope(b"scope..8")
        sender.send(b"data", "token", number=2**41 + 5)
        await both.client.until(lambda: both.client.deliveries)
        _, delivery, _ = both.client.deliveries[0]
        tag = receiver.update(delivery, outcome, "mine")
        assert tag == (2**41 + 5).to_bytes(8, "little") + b"scope..8"
        await both.server.until(lambda: both.server.given)
        link, of, token, given = both.server.given[0]
        assert (token, given) == ("token", outcome)
        assert both.client.confirmed_tokens == []
        link.confirm(of, outcome.state)
        await both.client.until(lambda: both.client.confirmed_tokens)
        ((confirmed, state),) = both.client.confirmed_tokens
        assert confirmed == "mine"
        assert state is not None
        assert state.state is outcome.state
        assert receiver.update(delivery, outcome, "again") is None


async def test_a_link_that_ends_before_it_is_confirmed_confirms_nothing() -> None:
    async with pair() as both:
        receiver, sender = await both.receiver(confirm=True)
        sender.send(b"data", "token")
        await both.client.until(lambda: both.client.deliveries)
        _, delivery, _ = both.client.deliveries[0]
        receiver.update(delivery, ACCEPTED, "mine")
        await both.server.until(lambda: both.server.given)
        receiver.close()
        await both.server.until(lambda: both.server.links_closed)
        link, of, _, outcome = both.server.given[0]
        link.confirm(of, outcome.state)
        await both.client.until(lambda: both.client.links_closed)
        # proton settles the deliveries of a freed link without an outcome: that confirms nothing.
        assert both.client.confirmed_tokens in ([], [("mine", None)])


async def test_an_outcome_that_was_given_is_not_taken_back_when_the_peer_detaches() -> None:
    async with pair() as both:
        receiver, sender = await both.receiver(confirm=True)
        for name in ("accepted", "held"):
            sender.send(name.encode(), name)
        await both.client.until(lambda: len(both.client.deliveries) == 2)
        _, delivery, _ = both.client.deliveries[0]
        receiver.update(delivery, ACCEPTED, "mine")
        sender.close()
        await both.client.until(lambda: both.client.links_closed)
        await both.server.until(lambda: len(both.server.given) == 2 or both.server.links_closed)
        given = [(token, outcome.state) for _, _, token, outcome in both.server.given]
        assert given[:1] == [("accepted", OutcomeState.ACCEPTED)]
        assert ("accepted", OutcomeState.RELEASED) not in given


async def test_both_ends_confirm_on_one_connection_that_is_aborted() -> None:
    async with pair() as both:
        receiver, sender = await both.receiver(confirm=True)
        sender.send(b"data", "token")
        await both.client.until(lambda: both.client.deliveries)
        _, delivery, _ = both.client.deliveries[0]
        receiver.update(delivery, ACCEPTED, "mine")
        await both.server.until(lambda: both.server.given)
        assert both.server.engine is not None
        both.server.engine.abort()
        link, of, _, outcome = both.server.given[0]
        link.confirm(of, outcome.state)  # proton's objects are gone
        await both.client.until(lambda: both.client.close_reasons)
        assert receiver.update(delivery, ACCEPTED, "again") is None
