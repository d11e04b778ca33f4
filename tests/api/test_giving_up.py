"""A search ends as its policy says, and the error lists every attempt."""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
from typing import Any

import proton
import pytest

from haclient import Message, State
from haclient.discovery.evidence import FailureReason
from haclient.errors import ConnectionGaveUp, DeadlineExceeded
from haclient.events import AttemptFailed, Disconnected, GaveUp
from tests.peers import BEHAVIOURS, Peer, primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

NOBODY = Peer("127.0.0.1", 1)
ONE_BY_ONE = {"backoff_base": 0.001, "backoff_max": 0.001, "stagger": 10}


async def failure(api: API, link: str, **arguments: Any) -> ConnectionGaveUp:
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionGaveUp) as caught:
            await api.connect(link, **arguments)
    return caught.value


@pytest.mark.parametrize("name", ["refused", "syn_drop", "silence", "open_and_close"])
async def test_the_startup_deadline_ends_the_first_connect(api: API, name: str) -> None:
    watch = Watch()
    behaviour = BEHAVIOURS["close_forced" if name == "open_and_close" else name]
    async with behaviour(NOBODY) as peer:
        error = await failure(api, url(peer, startup_deadline=0.3), on_event=watch)
    assert isinstance(error, DeadlineExceeded)
    assert isinstance(error, proton.Timeout)
    assert not error.connection_usable
    (gave_up,) = await watch.until(GaveUp)
    assert [record.endpoint.port for record in error.attempts] == [peer.port] * len(error.attempts)
    assert list(error.attempts) == [event.record for event in watch.of(AttemptFailed)]
    assert gave_up.last == error.attempts[-1].failure
    for record in error.attempts:
        assert str(record.endpoint) in str(error)
        assert record.started <= record.ended


async def test_the_error_has_a_line_for_each_endpoint_and_not_for_each_attempt(api: API) -> None:
    async with BEHAVIOURS["refused"](NOBODY) as one, BEHAVIOURS["close_forced"](NOBODY) as other:
        error = await failure(api, url(one, other, max_attempts=20, **ONE_BY_ONE))
    assert len(error.attempts) == 20
    assert error.gave_up_at is not None
    assert error.gave_up_at >= error.attempts[-1].ended
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - made here
    _, *lines = str(error).splitlines()
    ended = rf"amqp://{other.address}: 10 times closed \(amqp:connection:forced.*\)"
    patterns = (rf"amqp://{one.address}: 10 times connection refused", ended)
    for pattern in patterns:
        assert any(re.fullmatch(rf"  {pattern}; last \d\.\d s ago", line) for line in lines), lines
    assert len(lines) == 2


async def test_the_first_round_without_a_primary_is_a_warning_once(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    async with BEHAVIOURS["refused"](NOBODY) as one, BEHAVIOURS["close_forced"](NOBODY) as other:
        link = url(one, other, client_id="orders-service", backoff_base=0.001, backoff_max=0.001)
        with caplog.at_level(logging.WARNING, "haclient"):
            await failure(api, link, startup_deadline=0.3)
            await failure(api, link, max_attempts=4, startup_deadline=None)
    first, gave_up, second, _ = [record.getMessage() for record in caplog.records]
    answers = (
        rf"orders-service/1: no primary in the first round: amqp://{one.address}: connection refused; "
        rf"amqp://{other.address}: closed \(amqp:connection:forced.*\); the client goes on "
    )
    assert re.fullmatch(answers + r"for 0\.[0-3] s, until \d\d:\d\d:\d\d", first), first
    assert re.fullmatch(answers + "without a deadline", second), second
    assert gave_up.startswith("orders-service/1: gave up: ")


async def test_after_a_loss_the_first_round_is_a_warning_if_nobody_speaks_amqp(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    """Every failover begins with a backup that does not serve yet."""
    quick = {"backoff_base": 0.01, "backoff_max": 0.01, "max_attempts": 4}
    for name, count in (("refused", 1), ("close_forced", 0)):
        caplog.clear()
        watch = Watch()
        async with BEHAVIOURS[name](NOBODY) as other:
            async with primary() as peer:
                connection = await api.connect(url(peer, other, **quick), on_event=watch)
            await watch.until(GaveUp)
            await connection.close()
        found = [each for each in caplog.messages if "no primary in the first round" in each]
        assert len(found) == count, caplog.messages


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("syn_drop", FailureReason.STOPPED, "deadline: no TCP connection"),
        ("silence", FailureReason.STOPPED, "then silence"),
    ],
)
async def test_an_attempt_that_the_deadline_cut_off_is_listed(
    api: API, name: str, kind: FailureReason, words: str
) -> None:
    async with BEHAVIOURS[name](NOBODY) as peer:
        error = await failure(api, url(peer, startup_deadline=0.2))
    (record,) = error.attempts
    assert record.failure.kind is kind
    assert words in record.failure.detail
    assert words in str(error)


async def test_max_attempts_ends_the_search(api: API) -> None:
    async with BEHAVIOURS["refused"](NOBODY) as one, BEHAVIOURS["close_forced"](NOBODY) as other:
        error = await failure(api, url(one, other, max_attempts=5, backoff_base=0.001))
    assert not isinstance(error, DeadlineExceeded)
    assert [record.number for record in error.attempts] == [1, 2, 3, 4, 5]
    assert [record.failure.kind for record in error.attempts[:2]] == [
        FailureReason.REFUSED,
        FailureReason.CLOSED,
    ]
    assert "amqp:connection:forced" in str(error)


async def test_a_name_that_does_not_resolve_is_in_the_error(api: API) -> None:
    async with BEHAVIOURS["unresolvable"](NOBODY) as peer:
        error = await failure(api, url(peer, startup_deadline=0.3))
    assert error.attempts[0].failure.kind is FailureReason.UNRESOLVED
    assert "nowhere.invalid" in str(error)
    assert "no such name" in str(error)


@pytest.mark.slow
async def test_not_found_from_every_member_is_an_answer(api: API) -> None:
    async with BEHAVIOURS["close_not_found"](NOBODY) as one, BEHAVIOURS["close_not_found"](NOBODY) as other:
        error = await failure(api, url(one, other))
        assert len(one.accepted) == len(other.accepted) >= 3
    assert not isinstance(error, DeadlineExceeded)
    assert "amqp:not-found" in str(error)


async def test_the_deadline_ends_a_search_after_a_loss_and_fails_who_waits(api: API) -> None:
    watch = Watch()
    async with primary(grants=1, outcome=None) as peer:
        connection = await api.connect(url(peer, deadline=0.2), on_event=watch)
        sender = await connection.create_sender("q")
        receiver = await connection.create_receiver("q")
        sent, unsent = [await sender.submit(Message(body=body)) for body in range(2)]
        receiving = asyncio.ensure_future(receiver.receive())
        await peer.until(lambda: peer.received)
    await watch.until(GaveUp)
    assert len(watch.of(Disconnected)) == 1
    for waiting in (sent, unsent, receiving):
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(waiting, 5)
    # A message on the wire may have arrived; a message that never left did not.
    assert (sent.exception().delivered, sent.exception().safe_to_retry) == (None, False)
    assert (unsent.exception().delivered, unsent.exception().safe_to_retry) == (False, True)
    assert connection.state is State.FAILED
    with pytest.raises(DeadlineExceeded):
        await sender.send(Message())
    with pytest.raises(DeadlineExceeded):
        await connection.create_sender("q")
    await connection.close()
