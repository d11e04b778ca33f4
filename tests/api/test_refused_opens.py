"""Members that refuse every Open: elections, wrong names, ids, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import proton
import pytest

from haclient import Message, State, aio
from haclient.errors import ConnectionGaveUp, ConnectionNotAllowed, DeadlineExceeded
from haclient.events import Disconnected, GaveUp, Reconnected
from haclient.testing.virtual_clock import virtual_time
from tests.peers import Primary, primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

UNKNOWN = proton.Condition("amqp:not-found", "Unknown hostname in connection open: '127.0.0.1'")
FIELD = proton.Condition("amqp:invalid-field", "hostname")
# The condition of ActiveMQ, Artemis and Qpid Broker-J for a container id in use.
HELD = proton.Condition(
    "amqp:invalid-field",
    "container 'orders-1' is connected from 10.9.9.9",
    {proton.symbol("invalid-field"): proton.symbol("container-id")},
)
# Broker-J's condition for a user that the rules of its virtual host do not know.
NOT_ALLOWED = proton.Condition("amqp:not-allowed", "Connection refused")
FAST = {"backoff_base": 0.01, "backoff_max": 0.05}


@asynccontextmanager
async def group(*answers: proton.Condition | None) -> AsyncIterator[list[Primary]]:
    """Make members that refuse every Open with these conditions; one without serves."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(primary(refuses_opens=each)) for each in answers]


def elects(members: list[Primary], condition: proton.Condition) -> None:
    """The master dies, and no member serves for now."""
    for member in members:
        member.refuses_opens = condition
        member.drop()


@pytest.mark.parametrize("condition", [UNKNOWN, FIELD, HELD], ids=["host", "field", "id"])
async def test_an_election_ends_no_connection(api: API, condition: proton.Condition) -> None:
    """Every member refuses many times, then another one serves; messages from before and during it arrive."""
    watch = Watch()
    async with group(None, condition, condition) as members:
        old, new, other = members
        old.outcome = None
        connection = await api.connect(url(*members, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        unsettled = await sender.submit(Message(body="before"))
        await old.until(lambda: old.received)
        elects(members, condition)
        await watch.until(Disconnected)
        waiting = asyncio.ensure_future(sender.send(Message(body="during")))
        for member in members:
            await member.until(lambda member=member: member.refused >= 10)
        assert not watch.of(GaveUp)
        new.refuses_opens = None
        async with asyncio.timeout(20):
            await unsettled
            await waiting
        assert new.bodies == ["before", "during"]
        (reconnected,) = await watch.until(Reconnected)
        assert reconnected.endpoint.port == new.port
        await connection.close()
        assert other.bodies == []


async def test_a_refusal_that_lasts_ends_the_search_without_a_deadline(api: API) -> None:
    watch = Watch()
    async with group(None, UNKNOWN) as members:
        connection = await api.connect(url(*members, refusal_timeout=0.3, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        elects(members, UNKNOWN)
        await watch.until(Disconnected)
        with pytest.raises(ConnectionGaveUp) as caught:
            await asyncio.wait_for(sender.send(Message()), 20)
        (gave_up,) = await watch.until(GaveUp)
    assert not isinstance(caught.value, DeadlineExceeded)
    assert "amqp:not-found: Unknown hostname" in str(caught.value)
    assert caught.value.condition == "amqp:not-found"
    assert len(caught.value.attempts) >= 6
    assert gave_up.stamp.monotonic - watch.of(Disconnected)[0].stamp.monotonic >= 0.3
    assert connection.state is State.FAILED


async def test_all_connections_of_a_factory_survive_an_election(api: API) -> None:
    """One connection searches for all."""
    watch = Watch()
    async with group(None, UNKNOWN, UNKNOWN) as members:
        factory = await api.factory(url(*members, **FAST), on_event=watch)
        connections = [await factory.connect() for _ in range(5)]
        elects(members, UNKNOWN)
        await watch.until(Disconnected, count=5)
        for member in members:
            await member.until(lambda member=member: member.refused >= 5)
        members[2].refuses_opens = None
        await watch.until(Reconnected, count=5)
        assert not watch.of(GaveUp)
        for connection in connections:
            await connection.close()
        await factory.close()


async def test_all_connections_of_a_factory_give_up_together(api: API) -> None:
    """They do not give up one after the other."""
    watch = Watch()
    async with group(None, UNKNOWN) as members:
        factory = await api.factory(url(*members, refusal_timeout=1, **FAST), on_event=watch)
        connections = [await factory.connect() for _ in range(5)]
        elects(members, UNKNOWN)
        ends = await watch.until(GaveUp, count=5)
        for connection in connections:
            assert connection.state is State.FAILED
        await factory.close()
    owner, *others = sorted((end.attempts for end in ends), reverse=True)
    assert owner >= 6
    assert all(2 <= attempts <= 6 for attempts in others), "a round each, and not a second each"


async def test_the_first_connect_waits_for_an_election(api: API) -> None:
    async with group(UNKNOWN, UNKNOWN) as members:
        opening = asyncio.ensure_future(api.connect(url(*members, **FAST)))
        for member in members:
            await member.until(lambda member=member: member.refused >= 4)
        members[1].refuses_opens = None
        connection = await asyncio.wait_for(opening, 20)
        await connection.close()


@pytest.mark.slow
async def test_a_container_id_that_is_in_use_is_asked_for_until_it_is_free(api: API) -> None:
    async with group(UNKNOWN, HELD) as members:
        opening = asyncio.ensure_future(api.connect(url(*members, client_id="orders-1", **FAST)))
        await members[1].until(lambda: members[1].refused >= 100, timeout=60)
        members[1].refuses_opens = None
        connection = await asyncio.wait_for(opening, 20)
        await connection.close()


async def test_the_error_says_that_the_container_id_is_in_use(api: API) -> None:
    async with group(HELD, UNKNOWN) as members:
        with pytest.raises(DeadlineExceeded) as caught:
            await api.connect(url(*members, client_id="orders-1", startup_deadline=0.3, **FAST))
    first_line, *_ = str(caught.value).splitlines()
    assert "another connection has the container id of this client (option client_id)" in first_line
    assert "container 'orders-1' is connected from 10.9.9.9" in first_line


@pytest.mark.parametrize(
    "info",
    [
        None,
        {},
        {proton.symbol("invalid-field"): proton.symbol("hostname")},
        {proton.symbol("invalid-field"): [proton.symbol("container-id")]},
        {proton.symbol("invalid-field"): 7},
        {proton.symbol("field"): proton.symbol("container-id")},
    ],
    ids=repr,
)
async def test_another_field_is_not_taken_for_the_container_id(info: Any) -> None:
    async with group(proton.Condition("amqp:invalid-field", "no", info)) as members:
        with pytest.raises(DeadlineExceeded) as caught:
            await aio.connect(url(*members, startup_deadline=0.2, **FAST))
    assert "client_id" not in str(caught.value)


async def test_what_every_member_does_not_allow_is_an_error_of_its_own(api: API) -> None:
    """Each member is asked once, and the error quotes the refusal."""
    watch = Watch()
    async with group(NOT_ALLOWED, NOT_ALLOWED) as members:
        with pytest.raises(ConnectionNotAllowed) as caught:
            await asyncio.wait_for(api.connect(url(*members, stagger=10, **FAST), on_event=watch), 20)
    assert [member.refused for member in members] == [1, 1]
    error = caught.value
    first_line, *lines = str(error).splitlines()
    assert first_line.startswith("the connection is not allowed: amqp://")
    assert first_line.endswith("amqp:not-allowed: Connection refused")
    assert len(lines) == 2
    assert (error.code, error.connection_usable) == ("not-allowed", False)
    assert error.condition == "amqp:not-allowed"
    (gave_up,) = await watch.until(GaveUp)
    assert gave_up.cause == "not-allowed"


async def test_what_is_not_allowed_for_a_while_after_a_loss_ends_no_connection(api: API) -> None:
    """The member still counts the lost connection."""
    watch = Watch()
    async with group(None) as members:
        (member,) = members
        connection = await api.connect(url(member, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        elects(members, NOT_ALLOWED)
        waiting = asyncio.ensure_future(sender.send(Message(body="during")))
        await member.until(lambda: member.refused >= 10)
        assert not watch.of(GaveUp)
        member.refuses_opens = None
        await asyncio.wait_for(waiting, 20)
        await connection.close()
        assert member.bodies == ["during"]


async def test_what_is_not_allowed_for_long_after_a_loss_is_the_answer(api: API) -> None:
    async with group(None, NOT_ALLOWED) as members:
        connection = await api.connect(url(*members, refusal_timeout=0.3, **FAST))
        sender = await connection.create_sender("q")
        elects(members, NOT_ALLOWED)
        with pytest.raises(ConnectionNotAllowed):
            await asyncio.wait_for(sender.send(Message()), 20)
        assert connection.state is State.FAILED


def test_the_defaults_in_virtual_time() -> None:
    """The client waits for a minute of refusals, not for an hour; at the first connect for three seconds."""

    async def refuse_after_a_loss() -> tuple[float, float]:
        loop, watch = asyncio.get_running_loop(), Watch()
        async with group(None, UNKNOWN) as members:
            began = loop.time()
            with pytest.raises(ConnectionGaveUp):
                async with group(UNKNOWN) as others:
                    await aio.connect(url(*others))
            first = loop.time() - began
            connection = await aio.connect(url(*members), on_event=watch)
            began = loop.time()
            elects(members, UNKNOWN)
            # Events arrive from another thread: with a timer, virtual time would pass before they are here.
            await watch.until(GaveUp, timeout=None)
            after = loop.time() - began
            await connection.close()
        return first, after

    with virtual_time() as clock:
        first, after = clock.run(refuse_after_a_loss())
    assert 3 <= first < 15
    assert 60 <= after < 80
