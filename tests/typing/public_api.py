"""The whole public API, used as an application would, for mypy and pyright to check; nothing here runs.

Calls that must be refused have a ``type: ignore``; both checkers report needless ones.
"""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_never, assert_type

import proton

import haclient
from haclient import (
    AttemptRecord,
    ClusterURL,
    Connection,
    ConnectionFactory,
    Credentials,
    Delivery,
    Endpoint,
    Failure,
    FailureReason,
    Message,
    Outcome,
    OutcomeState,
    Receiver,
    Sender,
    State,
    Token,
    Topology,
    aio,
    errors,
    events,
)
from haclient.telemetry.opentelemetry import OpenTelemetrySink
from haclient.telemetry.prometheus import PrometheusSink
from haclient.tracing import MessageTracing

URL = "amqp://a,b"
FILTERS = {"rabbitmq:stream-offset-spec": "first", "other": proton.Described(proton.symbol("x"), 1)}


# -- making connections ---------------------------------------------------------------------------


def ask_for_credentials() -> Credentials:
    return Credentials(user="user", password="password")


def add_shard(outgoing: haclient.OutgoingMessage) -> haclient.Additions | None:
    return haclient.Additions(properties={"shard": outgoing.message.subject})


def ask_for_a_pair() -> tuple[str, str]:
    return "user", "password"


async def await_credentials() -> Credentials:
    return Credentials(user="user", password=None)


def ask_for_a_token() -> Token:
    return Token("value", expires_at=datetime.now(UTC), user="user")


def use_event(event: events.Event) -> None:
    str(event)


def configure_sender(link: proton.Sender) -> None:
    link.properties = {proton.symbol("a"): 1}


def configure_receiver(link: proton.Receiver) -> None:
    link.properties = {proton.symbol("a"): 1}


def version() -> None:
    assert_type(haclient.__version__, str)


def cluster_url() -> None:
    url = ClusterURL.parse(URL)
    assert_type(url, ClusterURL)
    assert_type(url.options.deadline, float | None)
    assert_type(url.seeds[0].endpoint, Endpoint)
    assert_type(url.srv, bool)


def blocking_factory(context: ssl.SSLContext) -> None:
    ConnectionFactory(
        URL, credentials=Credentials(user="user", password="password"), deadline=60, heartbeat=2.5
    )
    ConnectionFactory(URL, credentials=ask_for_credentials, ssl_context=context, on_event=use_event)
    ConnectionFactory(URL, credentials=await_credentials, delivery="at-most-once", window=10)
    ConnectionFactory(URL, credentials=ask_for_a_token)
    ConnectionFactory(ClusterURL.parse(URL))
    ConnectionFactory([URL, "c:5673"], user="user", password="password")
    ConnectionFactory(URL, credentials=("user", "password"))
    ConnectionFactory(URL, credentials=ask_for_a_pair)
    ConnectionFactory(URL, credentials="user:password")  # type: ignore[arg-type]
    ConnectionFactory(URL, timeout=5)  # type: ignore[call-arg]
    ConnectionFactory(None)  # type: ignore[arg-type]
    ConnectionFactory(URL, heartbeat=object())  # type: ignore[arg-type]
    ConnectionFactory(URL, hartbeat=5)  # type: ignore[call-arg]
    ConnectionFactory(
        URL, heartbeat="10s", deadline=timedelta(minutes=1), tls_ca=Path("ca.pem"), max_attempts=None
    )
    ConnectionFactory(URL, delivery="at-least-twice")  # type: ignore[arg-type]
    ConnectionFactory(URL, heartbeat=None)  # type: ignore[arg-type]
    ConnectionFactory(URL, window=2.5)  # type: ignore[arg-type]
    ConnectionFactory(URL, on_event=[use_event, PrometheusSink(), OpenTelemetrySink()])
    assert_type(ConnectionFactory.from_env({"HACLIENT_URL": URL}, window=5), ConnectionFactory)
    assert_type(ConnectionFactory.from_mapping({"url": URL}), ConnectionFactory)
    assert_type(ConnectionFactory.from_file("haclient.toml"), ConnectionFactory)
    ConnectionFactory.from_env(windw=5)  # type: ignore[call-arg]
    with ConnectionFactory(URL) as factory:
        assert_type(factory, ConnectionFactory)
        assert_type(factory.topology, Topology | None)
        assert_type(factory.connect(timeout=10), Connection)
    factory.close()


async def asyncio_factory(context: ssl.SSLContext) -> None:
    aio.ConnectionFactory(
        URL, credentials=Credentials(user="user", password="password"), deadline=60, heartbeat=2.5
    )
    aio.ConnectionFactory(URL, credentials=ask_for_credentials, ssl_context=context, on_event=use_event)
    aio.ConnectionFactory(URL, credentials=await_credentials, delivery="at-most-once", window=10)
    aio.ConnectionFactory(URL, hartbeat=5)  # type: ignore[call-arg]
    aio.connect(URL, standby="allways")  # type: ignore[arg-type]
    aio.connect(URL, tls_verify=None, hartbeat=5)  # type: ignore[arg-type, call-arg]
    assert_type(aio.ConnectionFactory.from_env(), aio.ConnectionFactory)
    async with aio.ConnectionFactory(URL) as factory, factory.connect() as connection:
        assert_type(factory, aio.ConnectionFactory)
        assert_type(factory.topology, Topology | None)
        assert_type(connection, aio.Connection)
        assert_type(await factory.connect(timeout=10), aio.Connection)
    await factory.close()


async def traced_messages(connection: Connection, other: aio.Connection) -> None:
    tracing = MessageTracing(carrier="properties")
    sender = tracing.trace(connection).create_sender("orders", name="link")
    assert_type(sender.send(Message(body="one"), timeout=5), Outcome)
    receiver = tracing.trace(connection).create_receiver("orders", credit=10)
    with receiver.processing(next(receiver)):
        pass
    assert_type(await (await tracing.trace(other).create_sender("orders")).send(Message(body="one")), Outcome)
    async for delivery in await tracing.trace(other).create_receiver("orders"):
        assert_type(delivery, aio.Delivery)
    MessageTracing(carrier="headers")  # type: ignore[arg-type]


# -- the blocking API ----------------------------------------------------------------------------


def blocking_connection() -> None:
    assert_type(haclient.connect(URL, deadline=60), Connection)
    assert_type(haclient.connect([URL, "amqp://c"], user="user", password="word", timeout=5), Connection)
    haclient.connect(URL, timeout="5")  # type: ignore[arg-type]
    haclient.connect(URL, dedline=60)  # type: ignore[call-arg]
    haclient.connect(URL, deadline=b"60")  # type: ignore[arg-type]
    with haclient.connect(URL) as connection:
        assert_type(connection.factory, ConnectionFactory)
        assert_type(connection.state, State)
        assert_type(connection.endpoint, Endpoint | None)
        assert_type(connection.generation, int | None)
        assert_type(connection.create_sender("orders"), Sender)
        assert_type(connection.create_sender(None, name="link", configure=configure_sender), Sender)
        connection.create_sender("orders", on_encode=add_shard, timeout=5, capabilities=["queue"])
        connection.create_sender("orders", on_encode=use_event)  # type: ignore[arg-type]
        assert_type(connection.factory.client_id, str)
        assert_type(connection.create_receiver("orders"), Receiver)
        assert_type(connection.create_receiver(None, dynamic=True, name="link"), Receiver)
        connection.create_receiver("orders", credit=10, browse=True, configure=configure_receiver)
        connection.create_receiver("orders", 10)  # type: ignore[call-arg]
        connection.create_receiver(
            "orders", selector="a = 1", filters=FILTERS, capabilities=("queue",), strict=False
        )
        assert_type(connection.subscribe("news"), Receiver)
        connection.subscribe(
            "news", name="mine", durable=True, shared=True, credit=0, selector="a = 1", timeout=5
        )
        connection.subscribe(
            "news",
            filters=FILTERS,
            capabilities=["x"],
            strict=False,
            confirm=True,
            configure=configure_receiver,
        )
        connection.unsubscribe("mine", topic="news", timeout=5)
        stream: Iterator[events.Event] = connection.events()
        for event in stream:
            use_event(event)
        for event in connection.events():
            assert_type(event, events.Event)
        with connection.events() as closing:
            assert_type(next(closing), events.Event)
            assert_type((closing.dropped, closing.closed), tuple[int, bool])
            closing.close()
    connection.close()


def blocking_sender(sender: Sender) -> None:
    assert_type(sender.address, str | None)
    assert_type(sender.unsettled, int)
    assert_type(sender.send(Message(body="one")), Outcome)
    assert_type(sender.send(Message(body="two"), timeout=30, durable=False, duplicate_id="id"), Outcome)
    assert_type(sender.send(b"three"), Outcome)
    sender.send({"at": datetime.now(UTC), "items": [1, 2.5, True, uuid.uuid4()]}, duplicate_id=b"id")
    sender.send(None)  # type: ignore[arg-type]
    sender.send(object())  # type: ignore[arg-type]
    assert_type(sender.send_many(["a", b"b", Message(body="c")], timeout=5, durable=False), list[Outcome])
    sender.send_many(str(number) for number in range(3))
    assert_type(sender.submit_nowait("d", durable=True, duplicate_id="id"), Future[Outcome])
    future: Future[Outcome] = sender.submit(Message(body="four"), timeout=0.5)
    assert_type(future.result(timeout=1), Outcome)
    sender.flush()
    sender.flush(timeout=10)
    with sender as same:
        assert_type(same, Sender)
    sender.close()


def blocking_receiver(receiver: Receiver) -> None:
    assert_type(receiver.address, str | None)
    assert_type(receiver.receive(), Delivery)
    assert_type(receiver.receive(timeout=5), Delivery)
    receiver.receive(5)  # type: ignore[call-arg]
    batch = receiver.receive_many(10, timeout=5, min_count=2)
    assert_type(batch, list[Delivery])
    assert_type(receiver.accept_many(batch), list[Delivery])
    assert_type(receiver.accept_many(batch, confirm=True, timeout=5), list[Delivery])
    receiver.add_credit(5)
    receiver.drain(timeout=5)
    receiver.detach()
    for delivery in receiver:
        assert_type(delivery, Delivery)
    with receiver as same:
        assert_type(same, Receiver)
    receiver.close()


def blocking_delivery(delivery: Delivery) -> None:
    assert_type(delivery.message, Message)
    assert_type(delivery.body, haclient.Body)
    assert_type(delivery.settled, bool)
    delivery.accept()
    delivery.accept(confirm=True, timeout=5)
    delivery.reject()
    delivery.reject("amqp:decode-error", "not a number")
    delivery.release()
    delivery.modify()
    delivery.modify(delivery_failed=False, undeliverable_here=True)
    with delivery as entered:
        assert_type(entered, Delivery)
    with delivery.processing(on_error="reject", timeout=5) as entered:
        assert_type(entered, Delivery)
    delivery.processing(on_error="accept")  # type: ignore[arg-type]


# -- the asyncio API -----------------------------------------------------------------------------


async def asyncio_connection() -> None:
    assert_type(await aio.connect(URL, deadline=60), aio.Connection)
    assert_type(await aio.connect((URL, "c"), credentials=("user", "word"), timeout=5), aio.Connection)
    aio.connect(None)  # type: ignore[arg-type]
    assert_type(aio.connect(URL), aio.Opening[aio.Connection])
    async with aio.connect(URL) as connection:
        assert_type(connection, aio.Connection)
        assert_type(connection.factory, aio.ConnectionFactory)
        assert_type(connection.state, State)
        assert_type(connection.endpoint, Endpoint | None)
        assert_type(connection.generation, int | None)
        assert_type(await connection.create_sender("orders"), aio.Sender)
        await connection.create_sender(None, name="link", configure=configure_sender)
        await connection.create_sender("orders", on_encode=add_shard, capabilities=("queue",))
        assert_type(await connection.create_receiver("orders"), aio.Receiver)
        await connection.create_receiver(None, dynamic=True, name="link")
        await connection.create_receiver(
            "orders", credit=10, browse=True, timeout=5, configure=configure_receiver
        )
        await connection.create_receiver("orders", 10)  # type: ignore[call-arg]
        await connection.create_receiver("orders", selector="a = 1", filters=FILTERS, strict=False)
        assert_type(await connection.subscribe("news", name="mine", durable=True), aio.Receiver)
        async with connection.subscribe(
            "news", shared=True, name="ours", capabilities=("global",)
        ) as receiver:
            assert_type(receiver, aio.Receiver)
        await connection.unsubscribe("mine", topic="news", timeout=5)
        stream: AsyncIterator[events.Event] = connection.events()
        async for event in stream:
            use_event(event)
        async for event in connection.events():
            assert_type(event, events.Event)
        async with connection.events() as closing:
            assert_type(await anext(closing), events.Event)
            assert_type((closing.dropped, closing.closed), tuple[int, bool])
            await closing.close()
    async with connection as same:
        assert_type(same, aio.Connection)
    await connection.close()


async def produce() -> AsyncIterator[str]:
    yield "body"


async def asyncio_sender(sender: aio.Sender) -> None:
    assert_type(sender.address, str | None)
    assert_type(sender.unsettled, int)
    assert_type(await sender.send(Message(body="one")), Outcome)
    assert_type(await sender.send(Message(body="two"), timeout=30, durable=False, duplicate_id="id"), Outcome)
    assert_type(await sender.send(b"three"), Outcome)
    await sender.send({"at": datetime.now(UTC), "items": [1, 2.5, True, uuid.uuid4()]}, duplicate_id=b"id")
    await sender.send(None)  # type: ignore[arg-type]
    await sender.send(object())  # type: ignore[arg-type]
    many = await sender.send_many(["a", b"b", Message(body="c")], timeout=5, durable=False)
    assert_type(many, list[Outcome])
    await sender.send_many(each async for each in produce())
    assert_type(sender.submit_nowait("d", durable=True, duplicate_id="id"), asyncio.Future[Outcome])
    future = await sender.submit(Message(body="four"), timeout=0.5)
    assert_type(future, asyncio.Future[Outcome])
    assert_type(await future, Outcome)
    await sender.flush()
    await sender.flush(timeout=10)
    async with sender as same:
        assert_type(same, aio.Sender)
    await sender.close()


async def asyncio_receiver(receiver: aio.Receiver) -> None:
    assert_type(receiver.address, str | None)
    assert_type(await receiver.receive(), aio.Delivery)
    assert_type(await receiver.receive(timeout=5), aio.Delivery)
    batch = await receiver.receive_many(10, timeout=5, min_count=2)
    assert_type(batch, list[aio.Delivery])
    assert_type(await receiver.accept_many(batch), list[aio.Delivery])
    await receiver.add_credit(5)
    await receiver.drain(timeout=5)
    await receiver.detach()
    async for delivery in receiver:
        assert_type(delivery, aio.Delivery)
    async with receiver as same:
        assert_type(same, aio.Receiver)
    await receiver.close()


async def asyncio_delivery(delivery: aio.Delivery) -> None:
    assert_type(delivery.message, Message)
    assert_type(delivery.body, haclient.Body)
    assert_type(delivery.settled, bool)
    await delivery.accept()
    await delivery.accept(confirm=True, timeout=5)
    await delivery.reject()
    await delivery.reject("amqp:decode-error", "not a number")
    await delivery.release()
    await delivery.modify()
    await delivery.modify(delivery_failed=False, undeliverable_here=True)
    async with delivery as entered:
        assert_type(entered, aio.Delivery)
    async with delivery.processing(on_error="reject", timeout=5) as entered:
        assert_type(entered, aio.Delivery)
    delivery.processing(on_error="accept")  # type: ignore[arg-type]


# -- facts ----------------------------------------------------------------------------------------


def states(state: State) -> bool:
    match state:
        case State.CONNECTING | State.CONNECTED | State.RECONNECTING:
            return True
        case State.CLOSED | State.FAILED:
            return False


def outcomes(outcome: Outcome) -> str:
    assert_type(outcome.accepted, bool)
    assert_type(outcome.condition, str | None)
    assert_type(outcome.description, str | None)
    assert_type(outcome.delivery_failed, bool)
    assert_type(outcome.undeliverable_here, bool)
    match outcome.state:
        case OutcomeState.ACCEPTED:
            return "taken"
        case OutcomeState.REJECTED | OutcomeState.RELEASED | OutcomeState.MODIFIED:
            return "not taken"


def outcomes_stay_as_they_are(outcome: Outcome) -> None:
    outcome.state = OutcomeState.ACCEPTED  # type: ignore[misc]


def credentials(credentials: Credentials) -> None:
    assert_type(credentials.user, str | None)
    assert_type(credentials.password, str | None)


def token(token: Token) -> None:
    assert_type(token.value, str)
    assert_type(token.expiry, float | None)


# -- errors ---------------------------------------------------------------------------------------


def every_error(error: errors.HaclientError) -> None:  # noqa: C901 - one case for each
    assert_type(error.connection_usable, bool)
    assert_type(error.delivered, bool | None)
    assert_type(error.safe_to_retry, bool)
    match error:
        case errors.AuthenticationFailed():
            assert_type(error.mechanism, str | None)
            assert_type(error.endpoint, Endpoint | None)
        case errors.TokenRequestError():
            assert_type(error.code, str)
        case errors.ConnectionGaveUp():
            assert_type(error.attempts, tuple[AttemptRecord, ...])
            assert_type(error.gave_up_at, float | None)
            assert_type(error.condition, str | None)
        case errors.LinkRefused():
            assert_type(error.condition, str | None)
            assert_type(error.redirect, Endpoint | None)
            assert_type(error.redirect_address, str | None)
        case errors.LinkClosed():
            assert_type(error.condition, str | None)
        case errors.MessageNotAccepted():
            assert_type(error.outcome, Outcome)
        case errors.SendManyError():
            assert_type(error.results, list[Outcome | errors.HaclientError])
        case errors.MessageTooLarge():
            assert_type(error.size, int)
            assert_type(error.limit, int)
        case errors.WindowFull():
            assert_type(error.window, int)
        case errors.UndecodableMessage():
            assert_type(error.code, str)
        case errors.UnencodableValue():
            assert_type(error.reason, str)
        case _:
            raise error


def errors_of_a_connection_are_those_of_proton(
    error: errors.ConnectionGaveUp
    | errors.DeadlineExceeded
    | errors.TLSVerificationFailed
    | errors.ConnectionNotAllowed
    | errors.ConnectionClosed,
) -> proton.ConnectionException:
    return error


def errors_of_a_link_are_those_of_proton(
    error: errors.LinkRefused
    | errors.LinkClosed
    | errors.MessageNotAccepted
    | errors.MessageTooLarge
    | errors.SendManyError
    | errors.WindowFull
    | errors.DeliveryUnknown
    | errors.FilterNotSupported
    | errors.ConfirmNotSupported
    | errors.StaleDelivery
    | errors.AlreadySettled,
) -> proton.LinkException:
    return error


def timeouts_are_those_of_proton(
    late: errors.LinkTimeout
    | errors.SendTimeout
    | errors.ReceiveTimeout
    | errors.DrainTimeout
    | errors.ConfirmTimeout,
) -> proton.Timeout:
    return late


def timeouts_are_those_of_python(
    late: errors.LinkTimeout
    | errors.SendTimeout
    | errors.ReceiveTimeout
    | errors.DrainTimeout
    | errors.ConfirmTimeout,
) -> TimeoutError:
    return late


def a_wrong_thread_is_an_error_of_the_program(error: errors.WrongThread) -> RuntimeError:
    return error


def errors_before_there_is_a_connection() -> None:
    try:
        haclient.connect(URL)
    except errors.ClusterURLError as error:
        assert_type(error.option, str | None)
        if isinstance(error, errors.ConfigurationError):
            assert_type(error.origin, str | None)
    except (errors.ResolutionError, errors.SaslUnavailableError) as error:
        assert_type(error, errors.ResolutionError | errors.SaslUnavailableError)
    except errors.HaclientError as error:
        assert_type(error.code, str)


# -- events ---------------------------------------------------------------------------------------


def every_event(event: events.Event) -> str:  # noqa: C901, PLR0912 - one case for each
    assert_type(event.stamp, events.Stamp)
    match event:
        case events.AttemptStarted() | events.Parked():
            assert_type(event.attempt, int)
            return str(event.endpoint)
        case events.AttemptFailed():
            assert_type(event.record, AttemptRecord)
            assert_type(event.record.failure, Failure)
            assert_type(event.record.failure.kind, FailureReason)
            return event.record.failure.kind.value
        case events.Redirected():
            assert_type((event.by, event.target), tuple[Endpoint, Endpoint])
            assert_type(event.followed, bool)
            return event.detail
        case events.BackingOff():
            assert_type((event.delay, event.base), tuple[float, float])
            assert_type(event.retry_after, float | None)
            return str(event.round)
        case events.Connected() | events.Reconnected():
            assert_type(event.endpoint, Endpoint)
            assert_type(event.generation, int | None)
            assert_type(event.duration, float)
            return str(event.replayed if isinstance(event, events.Reconnected) else event.attempts)
        case events.Disconnected():
            assert_type(event.unsettled, int)
            return event.reason
        case events.LinkRetrying():
            assert_type((event.link, event.address), tuple[str, str | None])
            assert_type((event.delay, event.refusals), tuple[float, int])
            assert_type(event.condition, str)
            return event.reason
        case events.GenerationsForgotten():
            assert_type((event.generation, event.highest), tuple[int | None, int | None])
            return str(event.cluster)
        case events.Blocked():
            return assert_type(event.endpoint, Endpoint).host
        case events.Unblocked():
            assert_type(event.duration, float)
            return event.endpoint.host
        case events.Unsettled():
            assert_type((event.count, event.link, event.address), tuple[int, str, str | None])
            return event.reason
        case events.DeliveryStale():
            assert_type((event.link, event.address), tuple[str, str | None])
            return event.reason
        case events.GaveUp():
            assert_type(event.last, Failure | None)
            return event.reason
        case events.Closed():
            return "closed"
        case _:
            assert_never(event)


def stamps(stamp: events.Stamp) -> dict[str, Any]:
    assert_type((stamp.time, stamp.monotonic), tuple[float, float])
    assert_type((stamp.connection, stamp.sequence, stamp.episode), tuple[int, int, int])
    return {"client_id": stamp.client_id, "name": assert_type(stamp.connection_name, str)}
