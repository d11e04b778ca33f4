"""Errors for users when a broker refuses, from a record of real brokers' answers.

A scripted peer repeats each broker's answer literally, over both APIs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from proton import Condition

from haclient import Credentials, Message, errors
from haclient.discovery import refusals
from haclient.outcome import Outcome, OutcomeState
from tests.peers import Primary, primary, url
from tests.peers.apis import API
from tests.peers.greeting import refusing_opens, refusing_passwords, resetting_at_opens
from tests.peers.recorded_refusals import REFUSALS, Refusal, Step

TIMEOUT = 0.3
PATIENCE = 20.0
FAST: dict[str, Any] = {"backoff_base": 0.001, "backoff_max": 0.01, "startup_deadline": PATIENCE}
PASSWORD = "not the password"
USER = Credentials(user="guest", password=PASSWORD)


def recorded(*steps: Step) -> pytest.MarkDecorator:
    """Parametrize a test by each record with one of these steps."""
    found = [each for each in REFUSALS if each.step in steps]
    names = [f"{each.product}: {each.situation}: {each.step.name.lower()}" for each in found]
    return pytest.mark.parametrize("record", found, ids=names)


def condition_of(record: Refusal) -> Condition:
    assert record.condition is not None
    return Condition(record.condition, record.description)


def assert_shown(
    error: errors.HaclientError, record: Refusal, endpoint: str = "", timeout: float = TIMEOUT
) -> None:
    """Assert the class of the error, and the recorded first line."""
    assert type(error).__name__ == record.error
    first_line = str(error).splitlines()[0]
    if record.shown:
        assert first_line == record.shown.replace("{endpoint}", endpoint).replace("{timeout}", str(timeout))
    assert not record.description or record.description in first_line
    assert PASSWORD not in str(error)


async def connect(api: API, where: str, **arguments: Any) -> Any:
    return await asyncio.wait_for(api.connect(where, **arguments), PATIENCE)


@asynccontextmanager
async def connected(api: API, peer: Primary) -> AsyncIterator[Any]:
    connection = await connect(api, url(peer, **FAST))
    try:
        yield connection
    finally:
        await connection.close()


# -- credentials and virtual hosts ------------------------------------------------------------


@recorded(Step.SASL)
async def test_a_wrong_password(api: API, record: Refusal) -> None:
    arguments = {} if record.mechanism == "ANONYMOUS" else {"credentials": USER}
    async with refusing_passwords(*record.mechanisms) as peer:
        with pytest.raises(errors.AuthenticationFailed) as caught:
            await connect(api, url(peer, sasl_plaintext="true", **FAST), **arguments)
        assert len(peer.accepted) == 1
    assert_shown(caught.value, record, f"amqp://{peer.address}")
    assert caught.value.mechanism == record.mechanism


@recorded(Step.MECHANISMS)
async def test_no_credentials_where_the_mechanisms_need_them(api: API, record: Refusal) -> None:
    async with refusing_passwords(*record.mechanisms) as peer:
        with pytest.raises(errors.AuthenticationFailed) as caught:
            await connect(api, url(peer, **FAST))
        assert len(peer.accepted) == 1
    assert_shown(caught.value, record, f"amqp://{peer.address}")


@recorded(Step.OPEN)
async def test_a_refused_open(api: API, record: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that passed SASL is not said to have a wrong password."""
    monkeypatch.setattr(refusals, "FIRST_SECONDS", 0.1)  # tests of the search use the real value
    mechanism = record.mechanism or "PLAIN"
    arguments = {} if mechanism == "ANONYMOUS" else {"credentials": USER}
    async with refusing_opens(condition_of(record), mechanism) as peer:
        with pytest.raises(errors.ConnectionGaveUp) as caught:
            await connect(api, url(peer, sasl_plaintext="true", **FAST), **arguments)
        refused_at_once = len(peer.accepted) == 1
    assert_shown(caught.value, record, f"amqp://{peer.address}")
    assert f"{record.condition}: {record.description}" in str(caught.value).splitlines()[0]
    assert refused_at_once is isinstance(caught.value, errors.AuthenticationFailed)


@recorded(Step.NO_OPEN)
async def test_an_open_that_is_not_answered(api: API, record: Refusal) -> None:
    """RabbitMQ takes three seconds; it accepts the user and the password first."""
    (vhost,) = re.findall(r"vhost:\w+", record.shown)
    async with resetting_at_opens("PLAIN") as peer:
        where = url(peer, sasl_plaintext="true", vhost=vhost, max_attempts=2, **FAST)
        with pytest.raises(errors.ConnectionGaveUp) as caught:
            await connect(api, where, credentials=USER)
        assert len(peer.accepted) == 2, "it may be let in later"
    assert type(caught.value).__name__ == record.error
    assert record.shown in str(caught.value)
    assert PASSWORD not in str(caught.value)


# -- addresses ----------------------------------------------------------------------------------


@recorded(Step.SENDER, Step.RECEIVER)
@pytest.mark.parametrize("by", ["detach", "end"])
async def test_an_address_that_the_broker_refuses(api: API, record: Refusal, by: Any) -> None:
    refuses = {record.address: condition_of(record)}
    async with primary(refuses=refuses, refuses_by=by) as peer:
        peer.properties["product"] = "RabbitMQ" if record.product.is_rabbitmq else str(record.product)
        await _create_refused(api, peer, record)


async def _create_refused(api: API, peer: Primary, record: Refusal) -> None:
    async with connected(api, peer) as connection:
        create = connection.create_sender if record.step is Step.SENDER else connection.create_receiver
        with pytest.raises(errors.LinkRefused) as caught:
            await asyncio.wait_for(create(record.address), PATIENCE)
    assert_shown(caught.value, record)
    assert (caught.value.condition, caught.value.connection_usable) == (record.condition, True)


# -- full addresses -----------------------------------------------------------------------------


@recorded(Step.REJECTED, Step.RELEASED)
async def test_a_message_that_the_broker_does_not_accept(api: API, record: Refusal) -> None:
    state = OutcomeState.RELEASED if record.step is Step.RELEASED else OutcomeState.REJECTED
    outcome = Outcome(state, record.condition, record.description)
    async with primary(outcome=outcome) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender(record.address)
        with pytest.raises(errors.MessageNotAccepted) as caught:
            await sender.send(Message(body="one"), timeout=PATIENCE)
    assert_shown(caught.value, record)
    assert caught.value.outcome.condition == record.condition
    assert caught.value.delivered is False


@recorded(Step.UNSETTLED)
async def test_a_broker_that_takes_the_message_and_settles_it_later(api: API, record: Refusal) -> None:
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender(record.address)
        with pytest.raises(errors.SendTimeout) as caught:
            await sender.send(Message(body="one"), timeout=TIMEOUT)
    assert_shown(caught.value, record)
    assert caught.value.delivered is None


@recorded(Step.DETACHED)
async def test_a_link_that_the_broker_detaches_at_a_message(api: API, record: Refusal) -> None:
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender(record.address)
        sending = asyncio.ensure_future(sender.send(Message(body="one"), timeout=PATIENCE))
        await peer.until(lambda: peer.received)
        peer.detach(condition_of(record))
        with pytest.raises(errors.LinkClosed) as caught:
            await sending
    assert_shown(caught.value, record)
    assert (caught.value.condition, caught.value.delivered) == (record.condition, None)


@recorded(Step.NO_CREDIT)
async def test_a_broker_that_grants_no_credit(api: API, record: Refusal) -> None:
    async with primary(grants=0) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender(record.address)
        with pytest.raises(errors.SendTimeout) as caught:
            await sender.send(Message(body="one"), timeout=TIMEOUT)
    assert_shown(caught.value, record)
    assert (caught.value.code, caught.value.delivered) == ("no-credit", False)


@recorded(Step.DROPPED)
async def test_a_broker_that_drops_the_connection_at_the_message(api: API, record: Refusal) -> None:
    """The message is sent again over each new connection, until the time is up."""
    timeout = 2.0
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender(record.address)
        sending = asyncio.ensure_future(sender.send(Message(body="one"), timeout=timeout))
        for copies in range(3):
            await peer.until(lambda copies=copies: len(peer.received) + peer.copies > copies)
            if copies < 2:  # the last one is on the wire when the time is up
                peer.drop()
        with pytest.raises(errors.SendTimeout) as caught:
            await sending
    assert_shown(caught.value, record, timeout=timeout)
    assert caught.value.delivered is None


@recorded(Step.NOTHING)
async def test_a_message_that_the_broker_accepts_and_drops_is_accepted(api: API, record: Refusal) -> None:
    """No client can see this; docs name the broker's setting that shows it."""
    assert record.error is None
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender(record.address)
        assert (await sender.send(Message(body="one"), timeout=PATIENCE)).accepted


def test_every_record_is_used() -> None:
    assert {each.step for each in REFUSALS} == set(Step)
