"""After a loss one member that refuses the credentials does not end the search for the others."""

from __future__ import annotations

import asyncio

import proton
import pytest

from haclient import Message, State
from haclient.discovery.evidence import FailureReason
from haclient.engine.settings import SaslServer
from haclient.errors import AuthenticationFailed
from haclient.events import GaveUp
from tests.peers import primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

# A member without the mechanism of this client refuses it as one that does not know its password.
OTHER_USERS = SaslServer(mechanisms=("DIGEST-MD5",))
STARTING = proton.Condition("amqp:connection:forced", "the broker is starting")
FAST = {"backoff_base": 0.01, "backoff_max": 0.05}


async def test_a_primary_that_starts_again_is_waited_for(api: API) -> None:
    """It refuses many times before it serves; the other member is asked once."""
    watch = Watch()
    async with primary() as serving, primary(sasl=OTHER_USERS) as wrong:
        connection = await api.connect(url(serving, wrong, **FAST), on_event=watch)
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
    """Then the refusal is the answer, as at the first connect."""
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
