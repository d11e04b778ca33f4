"""The arguments of ``connect`` and ``ConnectionFactory``, and the results of a function for credentials."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

import haclient
from haclient import Credentials, Message, State, aio
from haclient.cluster_url.errors import ClusterURLError
from haclient.discovery.evidence import FailureReason
from haclient.errors import DeadlineExceeded
from haclient.events import AttemptFailed, GaveUp, Reconnected
from tests.peers import BEHAVIOURS, Peer, primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

NOBODY = Peer("127.0.0.1", 1)
FAST: dict[str, Any] = {"backoff_base": 0.01, "backoff_max": 0.05}
SECRET = "hunter2"


@pytest.mark.parametrize("call", [haclient.connect, aio.connect])
def test_an_ide_shows_the_arguments(call: Callable[..., Any]) -> None:
    parameters = inspect.signature(call).parameters
    assert list(parameters)[:5] == ["url", "user", "password", "credentials", "timeout"]
    assert {"ssl_context", "on_event", "telemetry"} < set(parameters)


@pytest.mark.parametrize("call", [haclient.ConnectionFactory, aio.ConnectionFactory])
def test_a_factory_takes_the_same_but_for_the_timeout(call: Callable[..., Any]) -> None:
    of_connect = set(inspect.signature(aio.connect).parameters)
    assert set(inspect.signature(call).parameters) == of_connect - {"timeout"}


# -- the URL ----------------------------------------------------------------------------------


async def test_a_list_of_urls_is_a_seed_list(api: API) -> None:
    async with primary() as good, BEHAVIOURS["close_forced"](good) as passive:
        one, other = url(passive), good.address
        connection = await api.connect([one, other], window=5)
        assert str(connection.endpoint) == f"amqp://{good.address}"
        assert [seed.endpoint.port for seed in connection.factory._core.url.seeds] == [
            passive.port,
            good.port,
        ]
        await connection.close()


async def test_no_url_is_a_type_error_that_says_what_is_expected(api: API) -> None:
    for make in (api.connect, api.factory):
        with pytest.raises(TypeError, match=r"url: a cluster URL such as .* is expected, not None"):
            await make(None)  # type: ignore[arg-type]


# -- the timeout ------------------------------------------------------------------------------


async def test_the_timeout_is_the_deadline_of_this_connect(api: API) -> None:
    async with BEHAVIOURS["silence"](NOBODY) as silent:
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(api.connect(url(silent, startup_deadline=60), timeout=0.05), 20)
    async with primary() as good:
        connection = await api.connect(url(good, startup_deadline=0.001), timeout=math.inf)
        assert connection.state is State.CONNECTED
        await connection.close()


async def test_the_timeout_of_one_connect_holds_for_no_other(api: API) -> None:
    async with primary() as good:
        factory = await api.factory(url(good, startup_deadline=60))
        connection = await factory.connect(timeout=5)
        assert factory._core.options.startup_deadline == 60
        await connection.close()
        await factory.close()


def test_credentials_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        Credentials("u", "p")  # type: ignore[misc]


@pytest.mark.parametrize("timeout", ["5", True, math.nan])
async def test_a_timeout_that_is_none_is_refused(api: API, timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout: "):
        await api.connect(url(NOBODY), timeout=timeout)


# -- two arguments that set the same ----------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"timeout": 5, "startup_deadline": 5}, "argument 'timeout': startup_deadline sets the same"),
        ({"user": "u", "credentials": ("u", "p")}, "argument 'user': credentials sets the same"),
        ({"password": SECRET, "credentials": ("u", "p")}, "argument 'password': credentials sets the same"),
        ({"password": SECRET}, "argument 'password': there is no user that it belongs to"),
    ],
)
async def test_two_arguments_that_set_the_same_are_an_error(
    api: API, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ClusterURLError) as caught:
        await api.connect(url(NOBODY), **arguments)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)
    if "timeout" not in arguments:
        with pytest.raises(ClusterURLError):
            await api.factory(url(NOBODY), **arguments)


# -- credentials ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ("of", "url")),
        ({"user": "u", "password": "p"}, ("u", "p")),
        ({"user": "u"}, ("u", None)),
        ({"credentials": ("u", "p")}, ("u", "p")),
        ({"credentials": Credentials(user="u", password="p")}, ("u", "p")),
        ({"credentials": lambda: ("u", "p")}, ("u", "p")),
        ({"credentials": lambda: Credentials(user="u", password="p")}, ("u", "p")),
    ],
)
async def test_credentials_are_given_in_several_forms(
    api: API, arguments: dict[str, Any], expected: tuple[str, str | None]
) -> None:
    factory = await api.factory("amqp://of:url@a,b", **arguments)
    (found, _) = await factory._core.credentials.ask(haclient.Endpoint("a", 5672))
    assert (found.user, found.password) == expected
    await factory.close()


async def test_a_function_that_is_awaited_may_return_a_pair(api: API) -> None:
    async def ask() -> tuple[str, str]:
        return "u", "p"

    factory = await api.factory("amqp://a", credentials=ask)
    assert (await factory._core.credentials.ask(haclient.Endpoint("a", 5672)))[0] == Credentials(
        user="u", password="p"
    )
    await factory.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"credentials": SECRET}, "credentials: expected Credentials, Token or (user, password), not str"),
        ({"credentials": ("u", SECRET, "x")}, "expected Credentials, Token or (user, password), not tuple"),
        ({"credentials": ("u", 5)}, "credentials: the password must be text, not int"),
        ({"user": 5, "password": SECRET}, "user and password: the user must be text, not int"),
        ({"user": "u", "password": SECRET.encode()}, "the password must be text, not bytes"),
    ],
)
async def test_what_can_be_no_credentials_is_a_type_error_without_them(
    api: API, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError) as caught:
        await api.connect(url(NOBODY), **arguments)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


# -- a function for credentials that raises ---------------------------------------------------


class VaultError(Exception):
    """An error of the application."""


async def test_what_a_function_for_credentials_raises_at_the_first_connect_is_raised_unchanged(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    raised, watch, calls = VaultError(f"the vault said {SECRET}"), Watch(), []

    def broken() -> Credentials:
        calls.append(1)
        raise raised

    caplog.set_level(logging.DEBUG)
    async with primary() as one, primary() as other:
        with pytest.raises(VaultError) as caught:
            await api.connect(url(one, other), credentials=broken, on_event=watch)
        assert not one.accepted
    assert caught.value is raised
    (gave_up,) = await watch.until(GaveUp)
    assert (gave_up.cause, len(calls)) == ("authentication", 2)  # once for each member
    assert "VaultError in the application's callable" in str(watch.of(AttemptFailed))
    assert SECRET not in str(watch.events) + caplog.text


async def test_what_a_coroutine_function_raises_is_raised_unchanged(api: API) -> None:
    raised = KeyError("no such secret")

    async def broken() -> Credentials:
        raise raised

    async with primary() as good:
        with pytest.raises(KeyError) as caught:
            await api.connect(url(good), credentials=broken)
    assert caught.value is raised


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda: SECRET, TypeError),
        (lambda: next(iter(())), RuntimeError),  # StopIteration, which no future can hold
    ],
)
async def test_a_function_that_returns_or_stops_wrongly_is_an_error_at_once(
    api: API, function: Any, kind: type[Exception]
) -> None:
    async with primary() as good:
        with pytest.raises(kind) as caught:
            await asyncio.wait_for(api.connect(url(good), credentials=function), 10)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("kind", [OSError, TimeoutError, ConnectionRefusedError])
async def test_a_source_of_credentials_that_is_away_is_asked_again(
    api: API, kind: type[OSError], caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def away_at_first() -> Credentials:
        calls.append(1)
        if len(calls) < 3:
            raise kind(f"no route to the vault, token {SECRET}")
        return Credentials()

    async with primary() as good:
        connection = await api.connect(url(good, **FAST), credentials=away_at_first)
        assert (len(calls), len(good.accepted)) == (3, 1)
        await connection.close()
    assert f"callable for credentials raised {kind.__name__}; the client calls it again" in caplog.text
    assert SECRET not in caplog.text


async def test_after_the_first_connect_the_error_is_an_event_a_warning_and_a_retry(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    watch, calls = Watch(), []

    def broken_once() -> Credentials:
        calls.append(1)
        if len(calls) == 2:
            raise VaultError(f"the vault said {SECRET}")
        return Credentials()

    async with primary() as good:
        connection = await api.connect(url(good, **FAST), credentials=broken_once, on_event=watch)
        sender = await connection.create_sender("q")
        good.drop()
        await watch.until(Reconnected)
        assert (await sender.send(Message(body="after"), timeout=10)).accepted
        await connection.close()
    failures = [event.record.failure for event in watch.of(AttemptFailed)]
    assert FailureReason.AUTHENTICATION_TEMPORARY in {failure.kind for failure in failures}
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert any("callable for credentials raised VaultError" in each.getMessage() for each in warned)
    assert SECRET not in caplog.text + str(failures)


async def test_each_connection_of_a_factory_gets_the_error_at_its_own_first_connect(api: API) -> None:
    answers: list[Any] = [Credentials(), VaultError("one"), VaultError("two"), Credentials()]

    def ask() -> Credentials:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with primary() as good:
        factory = await api.factory(url(good, **FAST), credentials=ask)
        first = await factory.connect()
        for text in ("one", "two"):
            with pytest.raises(VaultError, match=text):
                await factory.connect()
        assert first.state is State.CONNECTED
        last = await factory.connect()
        assert last.state is State.CONNECTED
        await factory.close()
