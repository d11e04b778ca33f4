"""Secrets are planted, and all output of a run is searched for them."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
import traceback
from collections.abc import Iterator
from functools import cache

import pytest

import haclient
from haclient import Credentials, Message, aio
from haclient.errors import AuthenticationFailed, ConnectionGaveUp, HaclientError, SendTimeout
from haclient.events import Event, Reconnected
from tests.certificates import Authority
from tests.failover.waiting import next_of
from tests.members import Members

# Words that no program writes by itself, of letters that no escaping changes.
PASSWORD = "Vq7PlantedPasswordZx"
WRONG = "Vq7PlantedWrongPasswordZx"
TOKEN = "Vq7PlantedTokenZx"
BODY = "Vq7PlantedBodyZx"
SECRETS = (PASSWORD, WRONG, TOKEN, BODY)
USERS = {"app": PASSWORD, "token-user": TOKEN}
OPTIONS = "backoff_base=0.01&backoff_max=0.1"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256")


class Run:
    """Collects the visible texts of a run."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._texts: set[str] = set()  # most objects show the same text each time

    def look(self, *objects: object) -> None:
        """Collect ``repr`` and ``str`` of these, and the ``repr`` of every living object of the package."""
        self._texts.update(text for each in objects for text in (repr(each), str(each), f"{each}"))
        self._texts.update([repr(each) for each in gc.get_objects() if _ours(type(each))])

    def failed(self, error: BaseException) -> None:
        """Collect every text of an error and of its causes."""
        errors: list[BaseException] = [error]
        while (cause := errors[-1].__cause__ or errors[-1].__context__) is not None:
            errors.append(cause)
        self.look(*errors)
        self._texts.update(repr(vars(each)) for each in errors)
        self._texts.update(traceback.format_exception(error))

    def texts(self) -> Iterator[str]:
        yield from self._texts
        yield from map(repr, self.events)
        yield from map(str, self.events)


class _Keep(logging.Handler):
    """Keeps every log record; pytest's own forgets them before a fixture ends."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts += [logging.Formatter().format(record), repr(vars(record))]


@pytest.fixture
def run(members: Members, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run with all logging on; at the end search everything that it wrote."""
    found, log, root = Run(), _Keep(), logging.getLogger()
    level = root.level
    root.addHandler(log)
    root.setLevel(logging.DEBUG)
    gc.freeze()  # ``Run.look`` takes no objects of earlier tests, which may be a million
    try:
        yield found
    finally:
        gc.unfreeze()
        root.removeHandler(log)
        root.setLevel(level)
    written = capfd.readouterr()
    everything = "\n".join([*found.texts(), *log.texts, written.out, written.err, *members.logs()])
    assert log.texts
    for secret in SECRETS:
        for shape in _shapes(secret):
            assert shape not in everything, _around(everything, shape)


@cache
def _ours(kind: type) -> bool:
    """Return whether a type is ours; cached, for a million objects of a few thousand types."""
    # Cython's types give their module with a descriptor instead of a string.
    module = str(getattr(kind, "__module__", ""))
    return module.partition(".")[0] == "haclient" and not issubclass(kind, type)


def _shapes(secret: str) -> Iterator[str]:
    """Yield the encodings in which a secret could be written."""
    yield secret
    yield secret.encode().hex()
    for offset in range(3):
        # Its base64 depends on the text before; the edges depend on the neighbours and are left out.
        yield base64.b64encode(b"\0" * offset + secret.encode()).decode()[4:-4]


def _around(text: str, found: str) -> str:
    place = text.index(found)
    return text[max(0, place - 200) : place + 200]


def bodies() -> list[Message]:
    """Return the secret in every kind of body."""
    return [Message(body=each) for each in (BODY, BODY.encode(), {"key": BODY}, [BODY, [BODY]], 17)] + [
        Message(body=1, properties={"note": BODY}, subject=BODY, annotations={"x-opt-note": BODY})
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_run_through_a_failover_writes_no_password_and_no_body(
    mechanism: str, run: Run, members: Members
) -> None:
    primary, passive = members.pair(users=USERS, anonymous=False, log_level="debug")
    url = f"amqp://app:{PASSWORD}@{primary.address},{passive.address}?sasl_mechanisms={mechanism}&{OPTIONS}"
    async with aio.connect(url, on_event=run.events.append) as connection:
        events = connection.events()
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
        for message in bodies():
            run.look(await sender.send(message, timeout=10))
        deliveries = [await receiver.receive(timeout=10) for _ in bodies()]
        run.look(connection, connection.factory, sender, receiver, *deliveries, events)
        run.look(connection.factory.topology, connection.endpoint, connection.factory._core.url)
        primary.kill()
        futures = [await sender.submit(message) for message in bodies()]
        run.look(*futures, sender)
        with pytest.raises(SendTimeout) as late:
            await sender.send(Message(body=BODY), timeout=0.01)
        run.failed(late.value)
        await asyncio.to_thread(passive.promote)
        await next_of(events, Reconnected)
        for settled in futures:
            run.look(await asyncio.wait_for(settled, 10))
        for delivery in deliveries:
            with pytest.raises(haclient.errors.StaleDelivery) as stale:
                await delivery.accept()
            run.failed(stale.value)
        redelivered = await receiver.receive(timeout=10)
        await redelivered.reject("test:reason", "not this one")
        run.look(redelivered)
    with pytest.raises(HaclientError) as closed:
        await sender.send(Message(body=BODY))
    run.failed(closed.value)
    await asyncio.to_thread(passive.stop)


@pytest.mark.slow
def test_the_blocking_api_writes_no_password_and_no_body(run: Run, members: Members) -> None:
    member = members.start("primary", role="primary", users=USERS, anonymous=False, log_level="debug")
    url = f"amqp://app:{PASSWORD}@{member.address}?{OPTIONS}"
    with haclient.connect(url, on_event=run.events.append) as connection:
        sender, receiver = connection.create_sender("q"), connection.create_receiver("q")
        future = sender.submit(Message(body=BODY))
        run.look(future, future.result(10))
        delivery = receiver.receive(timeout=10)
        run.look(connection, connection.factory, sender, receiver, delivery, connection.events())
        member.kill()
        waiting = sender.submit(Message(body=BODY))
        with pytest.raises(SendTimeout) as late:
            sender.send(Message(body=BODY), timeout=0.01)
        run.failed(late.value)
        run.look(waiting)
        connection.close()  # the end of the block would wait for the message
    run.failed(waiting.exception(10) or AssertionError("it must have failed"))


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_refused_password_is_in_no_error_event_or_log(
    mechanism: str, run: Run, members: Members
) -> None:
    member = members.start("primary", role="primary", users=USERS, anonymous=False, log_level="debug")
    url = f"amqp://app:{WRONG}@{member.address}?sasl_mechanisms={mechanism}&{OPTIONS}"
    with pytest.raises(AuthenticationFailed) as raised:
        await aio.connect(url, on_event=run.events.append)
    run.failed(raised.value)
    run.look(raised.value.attempts)
    with pytest.raises(AuthenticationFailed) as blocked:
        await asyncio.to_thread(haclient.connect, url)
    run.failed(blocked.value)
    await asyncio.to_thread(member.stop)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_token_from_a_callable_is_in_no_error_event_or_log(
    mechanism: str, run: Run, members: Members, authority: Authority
) -> None:
    certificate = authority.issue("127.0.0.1")
    options = {"users": USERS, "anonymous": False, "log_level": "debug", "certificate": certificate}
    member = members.start("primary", role="primary", **options)
    given = [Credentials(user="token-user", password=WRONG), Credentials(user="token-user", password=TOKEN)]
    run.look(*given)

    def token() -> Credentials:
        if len(given) == 3:
            raise OSError(f"cannot use {TOKEN}")
        given.append(given[0] if len(given) == 2 else given[1])
        return given[-1]

    url = f"{member.url}?sasl_mechanisms={mechanism}&tls_ca={authority.file}&{OPTIONS}"
    with pytest.raises(ConnectionGaveUp) as raised:
        await aio.connect(f"{url}&max_attempts=2", credentials=token, on_event=run.events.append)
    run.failed(raised.value)
    async with aio.connect(url, credentials=given[1], on_event=run.events.append) as connection:
        run.look(connection, connection.factory)
    await asyncio.to_thread(member.stop)


@pytest.mark.slow
@pytest.mark.parametrize(
    "url",
    [
        "amqp://app:{}@host:port/",
        "amqp://app:{}@@host",
        "amqp://app:x{}/y@host",
        "amqp://app:{}@a,app:{}@b",
        "amqp://app:{}@host?no_such_option=1",
        "amqp://app:{}@host?heartbeat=never",
        "amqp://app:{}%ZZ@host",
        "failover:(amqp://app:{}@host,amqp://other:{}@host:nowhere)",
        "amqp:app/{}@tcp:host:port",
        "unknown://app:{}@host",
    ],
)
def test_a_url_that_is_refused_is_not_quoted_with_its_password(url: str, run: Run) -> None:
    logging.getLogger("haclient").debug("a run that has something to search")
    for connect in (haclient.ConnectionFactory, aio.ConnectionFactory, haclient.ClusterURL.parse):
        with pytest.raises(haclient.errors.ClusterURLError) as raised:
            connect(url.replace("{}", PASSWORD))
        run.failed(raised.value)


@pytest.mark.slow
def test_a_url_shows_itself_without_its_passwords(run: Run) -> None:
    logging.getLogger("haclient").debug("a run that has something to search")
    for text in (
        f"amqps://app:{PASSWORD}@a,b?heartbeat=5",
        f"failover:(amqp://app:{PASSWORD}@a,amqp://other:{WRONG}@b)?failover.maxReconnectAttempts=3",
        f"amqp:app/{PASSWORD}@tcp:a:5672,tcp:b:5672",
        f"amqp+srv://app:{PASSWORD}@cluster.test",
    ):
        url = haclient.ClusterURL.parse(text)
        run.look(url, url.seeds, *url.seeds, url.options, *(seed.password for seed in url.seeds))
        run.look(aio.ConnectionFactory(url))
