"""Wrong credentials end the search with one clear error; a callable gets another chance."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from broker_stub.admission.user_file import write_users
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import FailureReason
from haclient.errors import AuthenticationFailed
from haclient.events import AttemptFailed, AttemptStarted, Connected, GaveUp
from haclient.testing.proxy import Proxy, proxy
from tests.peers import url
from tests.peers.process import PrimaryProcess, primary_process
from tests.peers.watch import Watch

RIGHT = Credentials(user="alice", password="right-password")
WRONG = Credentials(user="alice", password="wrong-password")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256")


@pytest.fixture(scope="module", params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def process(mechanism: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrimaryProcess]:
    users = tmp_path_factory.mktemp("sasl")
    write_users(users / "users", {"alice": "right-password"})
    with primary_process(count=3, users=users / "users", mechanisms=[mechanism]) as started:
        yield started


@pytest.fixture
async def members(process: PrimaryProcess) -> AsyncIterator[list[Proxy]]:
    """Three members that know Alice, each of which would serve her; the proxies count who comes."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(proxy(peer)) for peer in process.peers]


async def test_the_right_password_connects(members: list[Proxy]) -> None:
    async with aio.connect(url(*members), credentials=RIGHT) as connection:
        assert connection.endpoint == Endpoint(members[0].host, members[0].port)


async def test_a_wrong_password_is_one_error_and_one_attempt_at_each_member(
    members: list[Proxy], mechanism: str
) -> None:
    watch = Watch()
    async with asyncio.timeout(10):
        with pytest.raises(AuthenticationFailed) as caught:
            # One after the other: who is slow on a busy machine must not be asked beside the next.
            await aio.connect(url(*members, stagger=10), credentials=WRONG, on_event=watch)
    assert [len(member.accepted) for member in members] == [1, 1, 1]
    error = caught.value
    assert error.mechanism == mechanism
    assert error.endpoint in {Endpoint(member.host, member.port) for member in members}
    first_line = str(error).splitlines()[0]
    assert mechanism in first_line
    assert str(error.endpoint) in first_line
    assert [record.failure.kind for record in error.attempts] == [FailureReason.AUTHENTICATION] * 3
    await watch.until(GaveUp)
    assert len(watch.of(AttemptStarted)) == len(watch.of(AttemptFailed)) == 3
    assert "wrong-password" not in f"{error!r} {error} {watch.events}"


async def test_a_password_in_the_url_is_used_and_never_shown(members: list[Proxy]) -> None:
    member = members[0]
    with pytest.raises(AuthenticationFailed) as caught:
        await aio.connect(f"amqp://alice:wrong-password@{member.address}")
    assert "wrong-password" not in f"{caught.value!r} {caught.value}"
    async with aio.connect(f"amqp://alice:right-password@{member.address}") as connection:
        assert connection.endpoint is not None


async def test_a_cluster_that_offered_scram_never_gets_plain_without_tls(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    users = tmp_path_factory.mktemp("sasl")
    write_users(users / "users", {"alice": "right-password"})
    watch = Watch()
    with (
        primary_process(users=users / "users", mechanisms=["SCRAM-SHA-256"]) as scram,
        primary_process(users=users / "users", mechanisms=["PLAIN"]) as plain,
    ):
        (first,), (second,) = scram.peers, plain.peers
        async with aio.connect(url(second), credentials=RIGHT):
            """Another factory knows nothing of SCRAM."""
        # Who is slow on a busy machine must not be asked beside the other one.
        both = url(first, second, refusal_timeout=0.3, stagger=10)
        async with aio.connect(both, credentials=RIGHT, on_event=watch) as connection:
            assert connection.endpoint == Endpoint(first.host, first.port)
            scram.signal(signal.SIGKILL)
            await watch.until(GaveUp)
    refusals = [failure for endpoint, failure in watch.failures() if endpoint.port == second.port]
    assert {(failure.kind, failure.mechanism) for failure in refusals} == {
        (FailureReason.AUTHENTICATION, None)
    }
    assert "has offered SCRAM" in refusals[0].detail


async def test_no_common_mechanism_is_an_authentication_failure(members: list[Proxy]) -> None:
    with pytest.raises(AuthenticationFailed, match="no SASL mechanism in common") as caught:
        await aio.connect(url(*members, sasl_mechanisms="ANONYMOUS"))
    assert caught.value.mechanism is None


@pytest.mark.parametrize("count", [1, 3])
async def test_a_callable_that_returns_a_new_token_is_asked_again(members: list[Proxy], count: int) -> None:
    tokens = iter([WRONG, RIGHT])
    watch = Watch()
    listed = members[:count]
    async with aio.connect(
        url(*listed, startup_deadline=60, stagger=60), credentials=lambda: next(tokens), on_event=watch
    ) as connection:
        assert connection.endpoint is not None
    (connected,) = await watch.until(Connected)
    assert connected.attempts == 2
    assert watch.kinds() == [FailureReason.AUTHENTICATION_TEMPORARY]


async def test_a_coroutine_function_can_give_the_credentials(members: list[Proxy]) -> None:
    async def ask() -> Credentials:
        return RIGHT

    async with aio.connect(url(*members), credentials=ask) as connection:
        assert connection.endpoint is not None


async def test_a_callable_that_returns_the_same_wrong_token_ends_the_search(members: list[Proxy]) -> None:
    asked = []

    def ask() -> Credentials:
        asked.append(WRONG)
        return Credentials(user=WRONG.user, password=WRONG.password)

    async with asyncio.timeout(10):
        with pytest.raises(AuthenticationFailed):
            await aio.connect(url(*members), credentials=ask)
    assert [len(member.accepted) for member in members] == [1, 1, 1]
    assert len(asked) <= 6


async def test_a_callable_that_raises_is_a_failed_attempt_and_asked_again(members: list[Proxy]) -> None:
    asked = []

    def ask() -> Credentials:
        asked.append(None)
        if len(asked) == 1:
            raise ConnectionRefusedError("the token service knows the-secret")
        return RIGHT

    watch = Watch()
    # On a slow machine attempts would begin beside others, and lose against them.
    there = url(*members, stagger=10)
    async with asyncio.timeout(20), aio.connect(there, credentials=ask, on_event=watch):
        pass
    await watch.until(Connected)
    ((_, failure),) = watch.failures()
    assert failure.kind is FailureReason.AUTHENTICATION_TEMPORARY
    assert "ConnectionRefusedError" in failure.detail
    assert "the-secret" not in str(watch.events)
