"""SASL against the user databases of real members."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

import haclient
from haclient import Credentials, Message, aio
from haclient.discovery.evidence import AttemptRecord, FailureReason
from haclient.errors import AuthenticationFailed, ConnectionGaveUp
from haclient.events import AttemptFailed, AttemptStarted, BackingOff, Event
from tests.certificates import Authority
from tests.members import Member, Members

USERS = {"app": "the word of app", "other": "the word of other"}
WORD = "the%20word%20of%20app"
OPTIONS = "backoff_base=0.01&backoff_max=0.1"
PASSWORD_MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]


@pytest.fixture
def member(members: Members) -> Member:
    """A member that refuses anonymous clients, for a test that stops it."""
    return members.start("primary", role="primary", users=USERS, anonymous=False, log_level="debug")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """A member that refuses anonymous clients, for tests that leave it as it is."""
    with Members(tmp_path_factory.mktemp("shared")) as members:
        yield members.start("shared", role="primary", users=USERS, anonymous=False)


async def use(connection: aio.Connection) -> None:
    sender = await connection.create_sender("orders")
    assert (await sender.send(Message(body="from a user"), timeout=10)).accepted


def started(events: list[Event]) -> Counter[str]:
    """How often each endpoint was dialled."""
    return Counter(str(event.endpoint) for event in events if isinstance(event, AttemptStarted))


def failures(events: list[Event]) -> list[AttemptRecord]:
    return [event.record for event in events if isinstance(event, AttemptFailed)]


async def refused(url: str, **arguments: object) -> tuple[AuthenticationFailed, list[Event]]:
    """How a connect failed that must fail for the credentials, and in its first round."""
    events = list[Event]()
    with pytest.raises(AuthenticationFailed) as raised:
        await aio.connect(url, on_event=events.append, **arguments)
    assert not any(isinstance(event, BackingOff) for event in events)
    return raised.value, events


# -- the right password ---------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_the_right_password_opens_the_connection(mechanism: str, member: Member) -> None:
    url = f"amqp://app:{WORD}@{member.address}?sasl_mechanisms={mechanism}&{OPTIONS}"
    async with aio.connect(url) as connection:
        await use(connection)
    await asyncio.to_thread(member.stop)
    assert "connection of app from" in member.log.read_text()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_the_right_password_opens_the_connection_under_tls(
    mechanism: str, members: Members, authority: Authority
) -> None:
    member = members.start(
        "primary", role="primary", users=USERS, anonymous=False, certificate=authority.issue("127.0.0.1")
    )
    url = f"amqps://app:{WORD}@{member.address}?sasl_mechanisms={mechanism}&tls_ca={authority.file}"
    async with aio.connect(f"{url}&sasl_plaintext=false") as connection:
        await use(connection)


def test_the_blocking_api_authenticates_too(shared: Member) -> None:
    with haclient.connect(f"amqp://app:{WORD}@{shared.address}") as connection:
        assert connection.create_sender("orders").send(Message(body=1), timeout=10).accepted


async def test_a_password_goes_by_the_safest_mechanism_when_none_is_asked_for(shared: Member) -> None:
    wrong, _ = await refused(f"amqp://app:wrong@{shared.address}?{OPTIONS}")
    assert wrong.mechanism == "SCRAM-SHA-512"


async def test_the_password_holds_after_a_failover(members: Members) -> None:
    primary, passive = members.pair(users=USERS, anonymous=False)
    url = f"amqp://app:{WORD}@{primary.address},{passive.address}?{OPTIONS}"
    async with aio.connect(url) as connection:
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(passive.promote)
        await use(connection)
        assert connection.endpoint == passive.endpoint


# -- the wrong one --------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_a_wrong_password_is_one_error_that_names_mechanism_and_endpoint(
    mechanism: str, shared: Member
) -> None:
    url = f"amqp://app:wrong@{shared.address}?sasl_mechanisms={mechanism}&{OPTIONS}"
    error, events = await refused(url)
    assert (error.mechanism, error.endpoint) == (mechanism, shared.endpoint)
    assert f"authentication failed at {shared.url} ({mechanism})" in str(error)
    assert started(events) == {shared.url: 1}
    assert not error.connection_usable


async def test_an_unknown_user_is_refused_like_a_wrong_password(shared: Member) -> None:
    error, events = await refused(f"amqp://nobody:{WORD}@{shared.address}?{OPTIONS}")
    assert error.endpoint == shared.endpoint
    assert started(events) == {shared.url: 1}


async def test_a_wrong_password_is_tried_once_at_each_member(members: Members) -> None:
    both = members.pair(users=USERS, anonymous=False, advertised=True)
    addresses = ",".join(member.address for member in both)
    # On a slow machine the second attempt would begin beside the first one, and be stopped with it.
    error, events = await refused(f"amqp://app:wrong@{addresses}?{OPTIONS}&stagger=10")
    assert started(events) == {member.url: 1 for member in both}
    assert [record.failure.kind for record in error.attempts] == [FailureReason.AUTHENTICATION] * 2
    assert "): it does not accept the user and the password\n" in str(error)
    assert (error.code, error.safe_to_retry) == ("authentication", False)


def test_a_wrong_password_is_the_same_error_for_the_blocking_api(shared: Member) -> None:
    with pytest.raises(AuthenticationFailed) as raised:
        haclient.connect(f"amqp://app:wrong@{shared.address}?{OPTIONS}")
    assert raised.value.endpoint == shared.endpoint
    assert "): it does not accept the user and the password\n" in str(raised.value)
    assert (raised.value.code, raised.value.safe_to_retry) == ("authentication", False)


async def test_no_user_where_one_is_needed_is_an_error_that_says_so(shared: Member) -> None:
    error, events = await refused(f"amqp://{shared.address}?{OPTIONS}")
    assert "no SASL mechanism in common" in str(error)
    assert "write a user and a password, as in amqp://user:password@host" in str(error)
    assert error.code == "no-common-mechanism"
    assert error.endpoint == shared.endpoint
    assert started(events) == {shared.url: 1}


async def test_a_mechanism_that_the_member_does_not_offer_is_an_error_that_says_so(members: Members) -> None:
    member = members.start("primary", role="primary", users=USERS)
    error, _ = await refused(
        f"amqp://app:{WORD}@{member.address}?sasl_mechanisms=SCRAM-SHA512,EXTERNAL&{OPTIONS}"
    )
    assert "no SASL mechanism in common: the peer offers " in str(error)
    assert "this client may use none; did you mean SCRAM-SHA-" in str(error)


async def test_plain_without_tls_is_refused_by_the_client_when_the_option_says_so(member: Member) -> None:
    url = f"amqp://app:{WORD}@{member.address}?sasl_mechanisms=PLAIN&sasl_plaintext=false&{OPTIONS}"
    error, _ = await refused(url)
    assert "PLAIN is not used without TLS here (option sasl_plaintext)" in str(error)
    await asyncio.to_thread(member.stop)
    assert "connection of app" not in member.log.read_text()


# -- credentials that are asked for ---------------------------------------------------------------


class Tokens:
    """Gives one password after the other, the last one for ever, and counts how often it was asked."""

    def __init__(self, *passwords: str) -> None:
        self._left = list(passwords)
        self.asked = 0

    def __call__(self) -> Credentials:
        self.asked += 1
        password = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return Credentials(user="app", password=password)

    async def later(self) -> Credentials:
        answer = self()  # counted first: an attempt may be cancelled while it waits
        await asyncio.sleep(0)
        return answer

    def soon(self) -> object:
        """A plain function that returns an awaitable, as ``functools.partial`` of a coroutine does."""
        return self.later()


@pytest.mark.parametrize("how", ["__call__", "later", "soon"])
async def test_a_callable_is_asked_before_each_attempt(how: str, members: Members) -> None:
    primary, passive = members.pair(users=USERS, anonymous=False)
    tokens, events = Tokens(USERS["app"]), list[Event]()
    url = f"amqp://{primary.address},{passive.address}?{OPTIONS}"
    async with aio.connect(url, credentials=getattr(tokens, how), on_event=events.append) as connection:
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(passive.promote)
        await use(connection)
    assert tokens.asked == started(events).total() >= 2


@pytest.mark.parametrize("how", ["__call__", "later", "soon"])
async def test_a_callable_is_asked_again_after_a_refusal_and_the_new_token_opens(
    how: str, shared: Member
) -> None:
    tokens, events = Tokens("expired", "expired too", USERS["app"]), list[Event]()
    url = f"amqp://{shared.address}?{OPTIONS}"
    async with aio.connect(url, credentials=getattr(tokens, how), on_event=events.append) as connection:
        await use(connection)
    assert tokens.asked == 3
    assert [record.failure.kind for record in failures(events)] == [
        FailureReason.AUTHENTICATION_TEMPORARY
    ] * 2


async def test_a_callable_whose_token_does_not_change_is_refused_once(member: Member) -> None:
    tokens, events = Tokens("expired"), list[Event]()
    with pytest.raises(AuthenticationFailed) as raised:
        await aio.connect(f"amqp://{member.address}?{OPTIONS}", credentials=tokens, on_event=events.append)
    assert raised.value.endpoint == member.endpoint
    assert "have not changed" in str(raised.value)
    assert raised.value.mechanism == "SCRAM-SHA-512"
    await asyncio.to_thread(member.stop)
    assert member.log.read_text().count("unauthorized-access") == 1


def test_the_blocking_api_asks_a_callable_again_too(shared: Member) -> None:
    tokens = Tokens("expired", USERS["app"])
    with haclient.connect(f"amqp://{shared.address}?{OPTIONS}", credentials=tokens) as connection:
        assert connection.create_sender("orders").send(Message(body=1), timeout=10).accepted
    assert tokens.asked == 2


async def test_a_callable_that_raises_is_asked_again_and_its_text_is_not_repeated(shared: Member) -> None:
    events = list[Event]()

    def failing() -> Credentials:
        if not failures(events):
            raise ConnectionError("the vault of the seventh floor is closed")
        return Credentials(user="app", password=USERS["app"])

    url = f"amqp://{shared.address}?{OPTIONS}"
    async with aio.connect(url, credentials=failing, on_event=events.append) as connection:
        await use(connection)
    (failure, *_) = failures(events)
    assert "ConnectionError" in failure.failure.detail
    assert "seventh floor" not in repr(events)


async def test_a_callable_that_never_answers_ends_with_the_attempt(shared: Member) -> None:
    async def silent() -> Credentials:
        await asyncio.Event().wait()
        raise AssertionError

    url = f"amqp://{shared.address}?attempt_timeout=0.2&max_attempts=2&{OPTIONS}"
    with pytest.raises(ConnectionGaveUp) as raised:
        await aio.connect(url, credentials=silent)
    assert [record.failure.kind for record in raised.value.attempts] == [FailureReason.TIMED_OUT] * 2


# -- credentials of several seeds -----------------------------------------------------------------


async def test_credentials_of_one_seed_are_never_used_for_another(members: Members) -> None:
    first = members.start("first", users={"u": "p"}, anonymous=False, log_level="debug")
    second = members.start("second", role="primary", users={"v": "q"}, anonymous=False, log_level="debug")
    url = f"failover:(amqp://u:p@{first.address},amqp://v:q@{second.address})?{OPTIONS}"
    async with aio.connect(url) as connection:
        await use(connection)
        assert connection.endpoint == second.endpoint
    for member in (first, second):
        await asyncio.to_thread(member.stop)
    # Each member saw its own user; a foreign one would have been refused and logged as such.
    assert "unauthorized-access" not in first.log.read_text() + second.log.read_text()
    assert "connection of u from" in first.log.read_text()
    assert "connection of v from" in second.log.read_text()


async def test_credentials_of_one_seed_are_not_used_for_a_seed_without_any(members: Members) -> None:
    open_to_all = members.start("open", role="primary", users={"u": "p"}, log_level="debug")
    url = f"failover:(amqp://u:p@127.0.0.1:1,amqp://{open_to_all.address})?{OPTIONS}"
    async with aio.connect(url) as connection:
        await use(connection)
    await asyncio.to_thread(open_to_all.stop)
    assert "connection of u from" not in open_to_all.log.read_text()


async def test_credentials_of_seeds_that_differ_do_not_follow_a_redirect(members: Members) -> None:
    stranger = members.start("stranger", role="primary", users={"u": "p", "v": "q"}, log_level="debug")
    passive = members.start("passive", primary=stranger.url, users={"u": "p"}, member=(stranger.url,))
    url = f"failover:(amqp://u:p@{passive.address},amqp://v:q@127.0.0.1:1)?{OPTIONS}"
    async with aio.connect(url) as connection:
        assert connection.endpoint == stranger.endpoint
    await asyncio.to_thread(stranger.stop)
    log = stranger.log.read_text()
    assert "connection of anonymous from" in log
    assert "connection of u from" not in log
    assert "connection of v from" not in log
