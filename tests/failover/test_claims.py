"""Claims-based security: a token for each address, renewed over the same session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from haclient import Credentials, Message, Token, aio
from haclient.errors import HaclientError, LinkRefused
from haclient.events import Disconnected, Event
from haclient.tokens import SharedAccessKey
from tests.failover.test_tokens import Supply
from tests.identity_provider import IdentityProvider
from tests.members import Member, Members

MECHANISMS = ["MSSBCBS", "ANONYMOUS"]


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Member]:
    folder = tmp_path_factory.mktemp("member")
    (folder / "keys").write_text("Root:the key\n")
    with Members(folder) as members:
        options = {**provider.options, "sas-keys": folder / "keys"}
        yield members.start("alone", role="primary", anonymous=False, cbs=True, **options)


def url(member: Member, mechanism: str) -> str:
    return f"{member.url}?sasl_mechanisms={mechanism}&attempt_timeout=5"


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_messages_go_on_while_the_token_is_renewed(
    mechanism: str, member: Member, provider: IdentityProvider
) -> None:
    events, supply = list[Event](), Supply(provider)
    async with aio.connect(url(member, mechanism), credentials=supply, on_event=events.append) as connection:
        senders = [await connection.create_sender(f"q{number}") for number in range(3)]
        receiver = await connection.create_receiver("q0")
        async with asyncio.timeout(60):
            while supply.asked < 5:
                for sender in senders:
                    assert (await sender.send("x", timeout=10)).accepted
                await (await receiver.receive(timeout=10)).accept()
    assert not [event for event in events if isinstance(event, Disconnected)]


@pytest.mark.parametrize("options", ["", "?sasl_mechanisms=PLAIN"])
async def test_a_shared_access_key_logs_in(member: Member, options: str) -> None:
    """By default with a mechanism of the member that can carry it."""
    key = SharedAccessKey(f"sb://{member.address}/", "Root", "the key")
    async with aio.connect(f"{member.url}{options}", credentials=key) as connection:
        assert (await (await connection.create_sender("q")).send("x", timeout=10)).accepted


async def test_a_refused_token_fails_the_link_with_the_reason(
    member: Member, provider: IdentityProvider
) -> None:
    async with aio.connect(
        url(member, "MSSBCBS"), credentials=Token(provider.token(aud="others"))
    ) as connection:
        for create in (connection.create_sender, connection.create_receiver):
            with pytest.raises(
                LinkRefused, match="refuses the token for 'q': 401 the token has another audience"
            ):
                await create("q", timeout=10)


async def test_without_a_token_no_node_may_be_used(member: Member) -> None:
    async with aio.connect(url(member, "ANONYMOUS")) as connection:
        for address in ("q", "$management"):
            with pytest.raises(LinkRefused, match=r"put a token into \$cbs first"):
                await connection.create_sender(address, timeout=10)
        with pytest.raises(HaclientError, match=r"put a token into \$cbs first"):
            # The refusal of an anonymous terminus is seen by its Detach.
            await (await connection.create_sender(None, timeout=10)).send(Message(address="q"), timeout=10)
        with pytest.raises(LinkRefused, match=r"put a token into \$cbs first"):
            await connection.create_receiver(None, dynamic=True, timeout=10)


async def test_a_broker_without_the_node_is_a_clear_error(tmp_path: Path) -> None:
    with Members(tmp_path) as members:
        plain = members.start("plain", role="primary")
        async with aio.connect(url(plain, "ANONYMOUS"), credentials=Token("a-token")) as connection:
            with pytest.raises(LinkRefused, match=r"takes no tokens in \$cbs"):
                await connection.create_sender("q", timeout=10)


async def test_a_token_is_not_put_in_clear_text_where_that_is_forbidden(member: Member) -> None:
    for mechanism in MECHANISMS:
        with pytest.raises(Exception, match="no SASL mechanism in common"):
            await aio.connect(f"{url(member, mechanism)}&sasl_plaintext=false", credentials=Token("a-token"))


async def test_a_put_beyond_any_token_is_refused_unread(member: Member) -> None:
    """A client that has no name yet must not make the member work."""
    async with aio.connect(
        url(member, "ANONYMOUS"), credentials=Credentials(user="x", password="y")
    ) as connection:
        answers = await connection.create_receiver("$cbs")
        sender = await connection.create_sender("$cbs")
        put = {"operation": "put-token"}
        for body in ("SharedAccessSignature " + "a=b&" * 200_000, "a" * 60_001):
            # An answer would repeat the long id, so there is none.
            await sender.send(Message(id="x" * 100_000, properties=put, body=body), timeout=10)
            await sender.send(Message(id="1", properties=put, body=body, reply_to="$cbs"), timeout=10)
            answer = (await answers.receive(timeout=10)).message
            assert (answer.correlation_id, answer.properties["status-code"]) == ("1", 400)
            assert answer.properties["status-description"] == "the token is longer than 60000 characters"


async def test_the_limit_of_connections_counts_a_client_under_the_name_it_puts(
    tmp_path: Path, provider: IdentityProvider
) -> None:
    with Members(tmp_path) as members:
        options = {**provider.options, "max-user-connections": 3}
        few = members.start("few", role="primary", anonymous=False, cbs=True, **options)
        connections = list[aio.Connection]()

        async def connect(user: str) -> aio.Connection:
            connection = await aio.connect(url(few, "MSSBCBS"), credentials=Token(provider.token(user)))
            connections.append(connection)
            await connection.create_sender("q", timeout=10)
            return connection

        for user in ("app", "other", "app", "app"):
            await connect(user)
        with pytest.raises(LinkRefused, match="user 'app' has 3 connections, which is the limit"):
            await connect("app")
        for connection in connections:
            await connection.close()
        for _ in range(5):
            await (await connect("app")).close()


async def test_a_client_that_puts_no_token_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("Root:the key\n")
    events = list[Event]()
    with Members(tmp_path) as members:
        options = {"sas-keys": tmp_path / "keys", "handshake-timeout": 0.3}
        brief = members.start("brief", role="primary", anonymous=False, cbs=True, **options)
        async with aio.connect(url(brief, "ANONYMOUS"), on_event=events.append), asyncio.timeout(30):
            while not [event for event in events if isinstance(event, Disconnected)]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
