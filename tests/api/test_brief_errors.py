"""An error shows only the beginning of a peer's long address, name or reason: 200 characters each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.error_catalog.base import brief, quoted
from haclient.errors import ConnectionGaveUp, HaclientError, LinkClosed, LinkRefused, MessageNotAccepted
from haclient.outcome import Outcome, OutcomeState
from haclient.testing.peers.passive import speaking
from tests.peers import primary, url
from tests.peers.apis import API, connected

LONG = 30_000
MOST = 1000
"""The most characters of a whole error: a sentence, and two or three foreign texts."""


def errors_of(error: BaseException | None) -> Iterator[BaseException]:
    """Return the texts of an error and its causes, as a traceback shows them."""
    while error is not None:
        yield error
        error = error.__cause__


def check(caught: pytest.ExceptionInfo[HaclientError], *shown: str) -> None:
    for error in errors_of(caught.value):
        assert len(str(error)) < MOST
    assert all(each in str(caught.value) for each in shown)


@given(st.text(max_size=500))
def test_a_text_is_whole_or_its_first_200_characters_with_their_count(text: str) -> None:
    if len(text) <= 200:
        assert (brief(text), quoted(text)[:1] in "'\"") == (text, True)
    else:
        assert brief(text) == f"{text[:200]}… ({len(text)} characters)"
        assert quoted(text).endswith(f"… ({len(text)} characters)")
    assert quoted(None) == "None"


async def test_a_refused_link_shows_the_beginning_of_its_address_and_of_the_reason(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        address = "a" * LONG
        peer.refuses[address] = proton.Condition("amqp:not-found", "r" * LONG)
        for create in (connection.create_sender, connection.create_receiver):
            with pytest.raises(LinkRefused) as caught:
                await create(address)
            check(caught, "a" * 200 + "'… (30000 characters)", "amqp:not-found: rrr")


async def test_an_address_beyond_the_frame_size_is_not_printed(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        with pytest.raises(LinkRefused) as caught:
            await connection.create_sender("a" * 1_000_000)
        check(caught, "(1000000 characters)")


async def test_a_detached_link_and_a_message_that_is_refused_show_the_beginning_of_the_reason(
    api: API,
) -> None:
    refusal = Outcome(OutcomeState.REJECTED, "app:bad", "r" * LONG)
    async with primary(outcome=refusal) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("a" * LONG)
        receiver = await connection.create_receiver("a" * LONG)
        with pytest.raises(MessageNotAccepted) as rejected:
            await sender.send(b"one")
        check(rejected, "app:bad: rrr", "(30000 characters)")
        assert rejected.value.outcome.description == "r" * LONG  # programs get the whole text
        peer.detach(proton.Condition("amqp:resource-deleted", "d" * LONG))
        with pytest.raises(LinkClosed) as closed:
            await receiver.receive(timeout=10)
        check(closed, "amqp:resource-deleted: ddd")


async def test_a_refused_connection_shows_the_beginning_of_the_reason(api: API) -> None:
    def close(engine: Any) -> None:
        engine.open()
        engine.close(proton.Condition("amqp:unauthorized-access", "r" * LONG))

    async with speaking(close) as peer:
        with pytest.raises(ConnectionGaveUp) as caught:
            await api.connect(url(peer, max_attempts=1))
        check(caught, "amqp:unauthorized-access: rrr")


async def test_objects_show_the_beginning_of_a_long_address(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("a" * LONG)
        assert len(repr(getattr(sender, "inner", sender))) < MOST
