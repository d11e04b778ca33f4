"""After a loss one member that refuses the credentials does not end the search at the others."""

from __future__ import annotations

import asyncio

import proton
import pytest

from haclient import Credentials, Message, State
from haclient.discovery.evidence import FailureReason
from haclient.engine.settings import SaslServer
from haclient.errors import AuthenticationFailed
from haclient.events import Disconnected, GaveUp, Reconnected
from tests.peers import primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

# A member without this client's mechanism refuses it like a member that does not know its password.
OTHER_USERS = SaslServer(mechanisms=("DIGEST-MD5",))
STARTING = proton.Condition("amqp:connection:forced", "the broker is starting")
FAST = {"backoff_base": 0.01, "backoff_max": 0.05}


async def test_a_primary_that_starts_again_is_waited_for(api: API) -> None:
    """The primary refuses many times before it serves; the other member is asked once."""
    watch = Watch()
    async with primary() as serving, primary(sasl=OTHER_USERS) as wrong:
        connection = await api.connect(url(serving, wrong, stagger=10, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        serving.refuses_opens = STARTING
        serving.drop()
        waiting = asyncio.ensure_future(sender.send(Message(body="after")))
        await serving.until(lambda: serving.refused >= 10)
        assert not watch.of(GaveUp)
        serving.refuses_opens = None
        await asyncio.wait_for(waiting, 20)
        await connection.close()
    assert serving.bodies == ["after"]
    assert len(wrong.accepted) == 1
    assert watch.kinds().count(FailureReason.AUTHENTICATION) == 1


async def test_nobody_else_serves_for_long_enough(api: API) -> None:
    """Then the refusal is the result, as at the first connect."""
    async with primary() as serving, primary(sasl=OTHER_USERS) as wrong:
        connection = await api.connect(url(serving, wrong, refusal_timeout=0.3, **FAST))
        sender = await connection.create_sender("q")
        serving.refuses_opens = STARTING
        serving.drop()
        with pytest.raises(AuthenticationFailed):
            await asyncio.wait_for(sender.send(Message()), 20)
        assert connection.state is State.FAILED
    assert serving.refused >= 3
    assert len(wrong.accepted) == 1


# A secured Artemis's condition in its Open to a client that SASL let in as anonymous.
NOBODY = proton.Condition(
    "amqp:unauthorized-access",
    "AMQ229031: Unable to validate user from 127.0.0.1:40866. Username: null; "
    "SSL certificate subject DN: unavailable",
)


async def test_an_unauthorized_open_is_one_attempt_at_each_member_and_one_error(api: API) -> None:
    """The client passed SASL, and is refused as if it had not."""
    watch = Watch()
    async with primary(refuses_opens=NOBODY) as first, primary(refuses_opens=NOBODY) as second:
        with pytest.raises(AuthenticationFailed) as caught:
            await asyncio.wait_for(api.connect(url(first, second, stagger=10, **FAST), on_event=watch), 20)
    assert [first.refused, second.refused] == [1, 1]
    assert watch.kinds() == [FailureReason.AUTHENTICATION] * 2
    error = caught.value
    assert (error.code, error.mechanism, error.safe_to_retry) == ("unauthorized", "ANONYMOUS", False)
    first_line = str(error).splitlines()[0]
    said = f"amqp:unauthorized-access: {NOBODY.description}"
    assert f"(ANONYMOUS): it requires a user and a password: {said}" in first_line


async def test_an_unauthorized_open_bars_that_member_after_a_loss(api: API) -> None:
    watch = Watch()
    async with primary() as serving, primary(refuses_opens=NOBODY) as wrong:
        connection = await api.connect(url(serving, wrong, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        serving.refuses_opens = STARTING
        serving.drop()
        waiting = asyncio.ensure_future(sender.send(Message(body="after")))
        await serving.until(lambda: serving.refused >= 10)
        serving.refuses_opens = None
        await asyncio.wait_for(waiting, 20)
        await connection.close()
    assert wrong.refused == 1


async def test_a_function_gets_another_chance_after_an_unauthorized_open(api: API) -> None:
    """The refused token is not sent again; the next one is."""
    token, asked = "old", 0

    def ask() -> Credentials:
        nonlocal asked
        asked += 1
        return Credentials(user="app", password=token)

    watch = Watch()
    async with primary() as serving, primary(refuses_opens=NOBODY) as other:
        listed = url(serving, other, sasl_mechanisms="ANONYMOUS", **FAST)
        connection = await api.connect(listed, credentials=ask, on_event=watch)
        serving.refuses_opens = STARTING
        serving.drop()
        await serving.until(lambda: serving.refused >= 10)
        assert other.refused == 1
        other.refuses_opens = None
        assert not watch.of(Reconnected)
        token = "new"
        (reconnected,) = await watch.until(Reconnected)
        await connection.close()
    assert reconnected.endpoint.port == other.port
    assert asked > 10, "in each round, for each member"
    assert FailureReason.AUTHENTICATION_TEMPORARY in watch.kinds()


async def test_an_unauthorized_close_of_a_connection_in_use_is_one_loss(api: API) -> None:
    """RabbitMQ does so when a token has expired; the function is asked for the next one."""
    expired = proton.Condition("amqp:unauthorized-access", "credential expired")
    asked: list[int] = []

    def ask() -> Credentials:
        asked.append(len(asked))
        return Credentials(user="app", password=f"token-{len(asked)}")

    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(
            url(peer, sasl_mechanisms="ANONYMOUS", **FAST), credentials=ask, on_event=watch
        )
        sender = await connection.create_sender("q")
        peer.close(expired)
        await watch.until(Reconnected)
        await asyncio.wait_for(sender.send(Message(body="after")), 20)
        await connection.close()
    assert peer.bodies == ["after"]
    assert len(asked) == 2
    assert len(watch.of(Disconnected)) == 1
    assert not watch.failures()


async def test_an_unauthorized_open_with_a_time_to_come_back_is_no_refusal_of_the_user(api: API) -> None:
    """The condition says when to ask again."""
    busy = proton.Condition("amqp:unauthorized-access", "directory away", {proton.symbol("retry-after"): 1})
    async with primary(refuses_opens=busy) as peer:
        opening = asyncio.ensure_future(api.connect(url(peer, **FAST)))
        await peer.until(lambda: peer.refused >= 2)
        peer.refuses_opens = None
        connection = await asyncio.wait_for(opening, 20)
        await connection.close()
