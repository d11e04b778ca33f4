"""Tokens at real members: log-in, refusals, renewals without a loss, keys that rotate."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import Message

import haclient
from haclient import Token, aio
from haclient.errors import AuthenticationFailed, StaleDelivery
from haclient.events import AttemptFailed, BackingOff, Disconnected, Event, LossKind, Reconnected
from tests.identity_provider import IdentityProvider
from tests.members import Member, Members
from tests.peers.apis import API, APIS

BEARER = ["OAUTHBEARER", "XOAUTH2", "PLAIN"]
# Seconds: a token that is renewed after 1.2 to 1.6 s; and the fewest that a member with a busy core needs.
SHORT = 2.0


@pytest.fixture(params=APIS, ids=lambda api: api.name)
def api(request: pytest.FixtureRequest) -> API:
    return request.param()


class Supply:
    """A function that returns tokens, and counts them."""

    def __init__(self, provider: IdentityProvider, seconds: float = SHORT) -> None:
        self.asked = 0
        self._provider, self._seconds = provider, seconds

    async def __call__(self) -> Token:
        self.asked += 1
        return Token(self._provider.token(seconds=self._seconds))


def url(member: Member, **options: object) -> str:
    return f"{member.url}?" + "&".join(f"{name}={value}" for name, value in options.items())


async def renewals(events: list[Event], count: int) -> None:
    """Wait until the connection has been renewed that often."""
    async with asyncio.timeout(60):
        while sum(isinstance(each, Reconnected) for each in events) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def assert_quiet(events: list[Event]) -> None:
    """Check that each loss was a renewal, without a failed attempt and without a delay."""
    assert {event.kind for event in events if isinstance(event, Disconnected)} == {LossKind.RENEWAL}
    assert not [event for event in events if isinstance(event, AttemptFailed | BackingOff)]
    assert all(event.planned for event in events if isinstance(event, Reconnected))


@pytest.mark.parametrize("mechanism", BEARER)
async def test_a_token_logs_in_by_each_mechanism(
    mechanism: str, api: API, token_member: Member, provider: IdentityProvider
) -> None:
    connection = await api.connect(
        url(token_member, sasl_mechanisms=mechanism), credentials=Token(provider.token())
    )
    sender = await connection.create_sender("orders")
    assert (await sender.send(Message(body=1), timeout=10)).accepted
    await connection.close()


REFUSED: dict[str, tuple[Callable[[IdentityProvider], str], str]] = {
    "expired": (lambda provider: provider.token(seconds=-60), "the token has expired"),
    "without expiry": (lambda provider: provider.token(exp=None), "claim exp"),
    "another audience": (lambda provider: provider.token(aud="others"), "another audience"),
    "another issuer": (lambda provider: provider.token(iss="others"), "another issuer"),
    "not yet valid": (lambda provider: provider.token(nbf=time.time() + 600), "claim nbf"),
    "no name": (lambda provider: provider.token(sub=None), "claim sub has no name"),
    "the name of the admin": (lambda provider: provider.token("cluster-admin"), "tokens do not give"),
    "not a JWT": (lambda _: "opaque", "not signed by a known key"),
    "a changed signature": (lambda provider: _changed(provider.token()), "not signed by a known key"),
}


def _changed(token: str) -> str:
    head, _, signature = token.rpartition(".")
    return f"{head}.{signature[:10]}{'A' if signature[10] != 'A' else 'B'}{signature[11:]}"


@pytest.mark.parametrize("mechanism", BEARER)
@pytest.mark.parametrize("what", REFUSED)
async def test_a_refused_token_is_one_error_with_the_reason(
    what: str, mechanism: str, token_member: Member, provider: IdentityProvider
) -> None:
    make, reason = REFUSED[what]
    token = make(provider)
    with pytest.raises(AuthenticationFailed) as caught:
        await aio.connect(url(token_member, sasl_mechanisms=mechanism), credentials=Token(token))
    assert caught.value.code == "token-refused"
    assert "it does not accept the token" in str(caught.value)
    assert token not in str(caught.value)
    if mechanism != "PLAIN":  # which cannot give a reason
        assert reason in str(caught.value)


@pytest.mark.parametrize("mechanism", BEARER)
async def test_an_unsigned_token_lets_nobody_in(
    mechanism: str, token_member: Member, provider: IdentityProvider
) -> None:
    """With ``alg`` none, and signed by the public key as if that were a shared secret (RFC 8725, 2.1)."""
    import base64
    import hashlib
    import hmac
    import json

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    key = json.loads(provider.key_set.read_text())["keys"][-1]
    claims = provider.token().split(".")[1]
    unsigned = f"{part({'alg': 'none', 'kid': key['kid']})}.{claims}."
    head = f"{part({'alg': 'HS256', 'kid': key['kid']})}.{claims}"
    digest = hmac.digest(json.dumps(key).encode(), head.encode(), hashlib.sha256)
    for token in (unsigned, f"{head}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"):
        with pytest.raises(AuthenticationFailed):
            await aio.connect(url(token_member, sasl_mechanisms=mechanism), credentials=Token(token))


@pytest.mark.slow
async def test_keys_rotate(tmp_path: Path) -> None:
    provider = IdentityProvider(tmp_path)
    with Members(tmp_path) as members:
        member = members.start("a", role="primary", anonymous=False, **provider.options)
        for _ in range(2):
            provider.rotate(keep=False)
            async with aio.connect(member.url, credentials=Supply(provider, 300)) as connection:
                assert (await (await connection.create_sender("q")).send("new key", timeout=10)).accepted


async def test_a_token_is_renewed_and_no_message_is_lost_or_doubled(
    api: API, token_member: Member, provider: IdentityProvider
) -> None:
    events, supply, node = list[Event](), Supply(provider), f"renewed-{api.name}"
    connection = await api.connect(token_member.url, credentials=supply, on_event=events.append)
    sender, receiver = await connection.create_sender(node), await connection.create_receiver(node, credit=7)
    sent, received = 0, Counter[int]()

    async def receive() -> None:
        while True:
            delivery = await receiver.receive()
            received[delivery.message.body] += 1
            await asyncio.sleep(random.uniform(0, 0.02))
            await delivery.accept()

    receiving = asyncio.create_task(receive())
    waiting = asyncio.create_task(renewals(events, 3))
    while not waiting.done():
        assert (await sender.send(Message(body=sent), timeout=30)).accepted
        sent += 1
        await asyncio.sleep(random.uniform(0, 0.01))
    await waiting
    async with asyncio.timeout(60):
        while len(received) < sent:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    receiving.cancel()
    await asyncio.wait([receiving])
    await connection.close()
    assert received == Counter(range(sent))
    assert_quiet(events)
    assert supply.asked >= 4


async def test_a_delivery_in_hand_is_settled_before_the_renewal(
    token_member: Member, provider: IdentityProvider
) -> None:
    """Its message does not come again, however slow the application; others go on sending meanwhile."""
    events = list[Event]()
    supply = Supply(provider, 6.0)
    async with aio.connect(token_member.url, credentials=supply, on_event=events.append) as connection:
        sender = await connection.create_sender("in-hand")
        await sender.send("one", timeout=10)
        receiver = await connection.create_receiver("in-hand")
        delivery = await receiver.receive(timeout=10)
        async with asyncio.timeout(30):
            while supply.asked < 2:  # noqa: ASYNC110 - the renewal has begun
                await asyncio.sleep(0.01)
        await sender.send("two", timeout=10)
        assert not [event for event in events if isinstance(event, Disconnected)]
        await delivery.accept()
        await renewals(events, 1)
        assert (await receiver.receive(timeout=10)).message.body == "two"
    assert_quiet(events)


async def test_a_delivery_that_stays_in_hand_is_stale_after_the_renewal(
    token_member: Member, provider: IdentityProvider
) -> None:
    events = list[Event]()
    async with aio.connect(
        token_member.url, credentials=Supply(provider), on_event=events.append
    ) as connection:
        await (await connection.create_sender("kept")).send("one", timeout=10)
        receiver = await connection.create_receiver("kept")
        delivery = await receiver.receive(timeout=10)
        await renewals(events, 1)
        with pytest.raises(StaleDelivery):
            await delivery.accept()
        again = await receiver.receive(timeout=10)
        assert again.message.body == "one"
        await again.accept()


async def test_credit_that_the_application_gave_survives_the_renewal(
    token_member: Member, provider: IdentityProvider
) -> None:
    events = list[Event]()
    async with aio.connect(
        token_member.url, credentials=Supply(provider), on_event=events.append
    ) as connection:
        receiver = await connection.create_receiver("asked", credit=0)
        await receiver.add_credit(2)
        await renewals(events, 1)
        sender = await connection.create_sender("asked")
        for body in range(3):
            await sender.send(body, timeout=10)
        assert [(await receiver.receive(timeout=10)).message.body for _ in range(2)] == [0, 1]
        with pytest.raises(TimeoutError):
            await receiver.receive(timeout=0.3)


@pytest.mark.slow
async def test_without_another_token_nothing_is_renewed_and_the_broker_decides(
    token_member: Member, provider: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    events, tokens = list[Event](), [Token(provider.token(seconds=SHORT))]

    def supply() -> Token:
        return tokens[-1]

    async with aio.connect(token_member.url, credentials=supply, on_event=events.append) as connection:
        async with asyncio.timeout(60):
            while not (lost := [event for event in events if isinstance(event, Disconnected)]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (lost[0].kind, lost[0].condition) == (LossKind.CLOSE, "amqp:unauthorized-access")
        tokens.append(Token(provider.token()))
        await renewals(events, 1)
        assert (await (await connection.create_sender("q")).send("back", timeout=30)).accepted
    assert "has expired by the clock here" in caplog.text


@pytest.mark.slow
async def test_a_function_that_fails_is_asked_again_before_the_token_expires(
    token_member: Member, provider: IdentityProvider
) -> None:
    asked = 0

    def supply() -> Token:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ConnectionError("the provider of tokens restarts")
        return Token(provider.token(seconds=8))

    events = list[Event]()
    async with aio.connect(token_member.url, credentials=supply, on_event=events.append):
        await renewals(events, 1)
    assert_quiet(events)
    assert asked == 3  # the connect, the failure, and the renewal


async def test_a_client_with_a_token_finds_the_next_primary(
    members: Members, provider: IdentityProvider
) -> None:
    primary, passive = members.pair(anonymous=False, **provider.options)
    supply, events = Supply(provider), list[Event]()
    both = f"amqp://{primary.address},{passive.address}?backoff_base=0.01&backoff_max=0.1"
    async with aio.connect(both, credentials=supply, on_event=events.append) as connection:
        sender = await connection.create_sender("orders")
        await sender.send("before", timeout=10)
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(passive.promote)
        assert (await sender.send("after", timeout=30)).accepted
        assert connection.endpoint == passive.endpoint


@pytest.mark.parametrize("standby", ["warm", "outage"])
async def test_a_renewal_beside_a_standby_is_no_outage(
    standby: str, members: Members, provider: IdentityProvider
) -> None:
    """The spare connection has logged in with the former token."""
    primary, passive = members.pair(anonymous=False, **provider.options)
    events = list[Event]()
    both = f"amqp://{primary.address},{passive.address}?standby={standby}"
    async with aio.connect(both, credentials=Supply(provider), on_event=events.append) as connection:
        sender = await connection.create_sender("orders")
        await renewals(events, 2)
        assert (await sender.send("after", timeout=30)).accepted
    assert_quiet(events)


async def test_a_token_that_becomes_valid_is_sent_again(
    members: Members, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same one was refused before: its claim nbf was in the future, beyond the leeway of 5 s."""
    monkeypatch.setattr("haclient.factory.connect_params._TOKEN_REFUSED_FOR", 0.2)
    member = members.start("one", role="primary", anonymous=False, **provider.options)
    tokens, events = [Token(provider.token())], list[Event]()
    fast = url(member, backoff_base=0.01, backoff_max=0.1)
    async with aio.connect(fast, credentials=lambda: tokens[-1], on_event=events.append) as connection:
        sender = await connection.create_sender("q")
        tokens.append(Token(provider.token(nbf=time.time() + 8)))
        await asyncio.to_thread(member.kill)
        await asyncio.to_thread(member.start)
        assert (await sender.send("valid now", timeout=60)).accepted
    refused = [event for event in events if isinstance(event, AttemptFailed)]
    assert any("claim nbf" in str(event.record.failure) for event in refused)


async def test_a_planned_reconnect_uses_the_token_that_was_supplied_for_it(
    token_member: Member, provider: IdentityProvider
) -> None:
    events, supply = list[Event](), Supply(provider)
    async with aio.connect(token_member.url, credentials=supply, on_event=events.append):
        await renewals(events, 3)
    assert supply.asked in (4, 5)  # the connect and each renewal, and one that the end may have cut short


@pytest.mark.parametrize("standby", ["none", "warm"])
async def test_links_with_claims_outlive_a_failover_to_a_member_with_newer_keys(
    standby: str, members: Members, tmp_path: Path
) -> None:
    """The next primary has not read the key of the token yet; and a spare connection has an old token."""
    provider = IdentityProvider(tmp_path)
    primary, passive = members.pair(anonymous=False, cbs=True, **provider.options)
    options = f"sasl_mechanisms=MSSBCBS&backoff_base=0.01&backoff_max=0.1&standby={standby}"
    both = f"amqp://{primary.address},{passive.address}?{options}"
    supply = Supply(provider)
    async with aio.connect(both, credentials=supply) as connection:
        sender = await connection.create_sender("orders")
        await sender.send("before", timeout=10)
        provider.rotate(keep=False)
        async with asyncio.timeout(60):
            while supply.asked < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(passive.promote)
        assert (await sender.send("after", timeout=30)).accepted


def test_a_blocking_connection_that_is_closed_while_it_waits_to_renew_ends(
    token_member: Member, provider: IdentityProvider
) -> None:
    asked = threading.Semaphore(0)

    def supply() -> Token:
        asked.release()
        return Token(provider.token(seconds=SHORT))

    connection = haclient.connect(token_member.url, credentials=supply)
    connection.create_sender("closing").send("one", timeout=10)
    receiver = connection.create_receiver("closing")
    delivery: Any = receiver.receive(timeout=10)
    for _ in range(2):  # to connect, and to renew, which waits for the delivery in hand
        assert asked.acquire(timeout=30)
    connection.close()
    assert delivery.message.body == "one"
