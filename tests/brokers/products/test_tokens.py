"""Tokens of Keycloak at brokers that are not ours, and at the pair.

RabbitMQ 4 takes a token as a password.  Broker-J takes it by XOAUTH2, and asks Keycloak about it.

Each token lives for seconds, so that a connection is renewed again and again.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from joserfc.jwk import RSAKey

from haclient import Token, aio
from haclient.errors import AuthenticationFailed
from haclient.events import AttemptFailed, Disconnected, Event, LossKind, Reconnected
from haclient.tokens import ClientCredentials, TokenRequestError
from tests.brokers.products import installed, rabbitmq4
from tests.brokers.products.keycloak import AUDIENCE, Keycloak
from tests.brokers.products.one_broker_j import OneBrokerJ
from tests.brokers.products.rabbitmq4 import address
from tests.certificates import Authority
from tests.identity_provider import IdentityProvider
from tests.interop.rabbitmq import RabbitMQ
from tests.members import Member, Members

_MISSING = installed.missing("Keycloak", installed.KEYCLOAK)
pytestmark = [
    pytest.mark.brokers,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "it is there"),
]
_LIFESPAN = 12
_RENEWALS = 4


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Keycloak]:
    certificate = authority.issue("127.0.0.1")
    folder = tmp_path_factory.mktemp("keycloak")
    with Keycloak(folder, lifespan=_LIFESPAN, certificate=certificate) as keycloak:
        yield keycloak


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> IdentityProvider:
    """Another provider, whose tokens no broker here accepts."""
    return IdentityProvider(tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory, keycloak: Keycloak) -> Iterator[RabbitMQ]:
    if reason := rabbitmq4.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("rabbitmq")
    (key,) = (each for each in keycloak.get("/protocol/openid-connect/certs")["keys"] if each["use"] == "sig")
    pem = folder / "key.pem"
    pem.write_bytes(RSAKey.import_key(key).as_pem(private=False))
    pem.chmod(0o644)
    configuration = f"""\
auth_backends.1 = rabbit_auth_backend_oauth2
auth_backends.2 = internal
auth_oauth2.resource_server_id = {AUDIENCE}
auth_oauth2.additional_scopes_key = extra_scope
auth_oauth2.preferred_username_claims.1 = preferred_username
auth_oauth2.signing_keys.{key["kid"]} = {pem}
auth_oauth2.algorithms.1 = RS256
"""
    plugins = ("rabbitmq_auth_backend_oauth2",)
    broker = RabbitMQ(folder=folder, root=installed.DEBIAN_13, plugins=plugins, configuration=configuration)
    with broker:
        queue = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
        (folder / "queues.json").write_text(json.dumps({"queues": [queue]}))
        broker.nodes[0].control("import_definitions", str(folder / "queues.json"))
        yield broker


@pytest.fixture(scope="module")
def broker_j(
    tmp_path_factory: pytest.TempPathFactory, keycloak: Keycloak, authority: Authority
) -> Iterator[OneBrokerJ]:
    if reason := installed.missing("Broker-J", installed.BROKER_J):
        pytest.skip(reason)
    with OneBrokerJ(tmp_path_factory.mktemp("broker-j"), keycloak, authority) as broker_j:
        yield broker_j


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, keycloak: Keycloak) -> Iterator[Member]:
    with Members(tmp_path_factory.mktemp("pair")) as members:
        options = {"token-issuer": keycloak.issuer, "token-audience": AUDIENCE, "jwks": keycloak.key_set}
        claim = {"token-claim": "preferred_username"}
        yield members.start("pair", role="primary", anonymous=False, **options, **claim)


async def no_message_is_lost_or_doubled(url: str, node: str, credentials: ClientCredentials) -> list[Event]:
    """Send and receive until the connection has been renewed often enough; return its events."""
    events, received, sent = list[Event](), Counter[object](), 0
    async with aio.connect(url, credentials=credentials, on_event=events.append) as connection:
        sender, receiver = (
            await connection.create_sender(node),
            await connection.create_receiver(node, credit=20),
        )

        async def receive() -> None:
            async for delivery in receiver:
                received[delivery.message.body] += 1
                await asyncio.sleep(random.uniform(0, 0.01))
                await delivery.accept()

        receiving = asyncio.create_task(receive())
        async with asyncio.timeout(300):
            while sum(isinstance(event, Reconnected) for event in events) < _RENEWALS:
                assert (await sender.send(sent, timeout=60)).accepted
                sent += 1
                await asyncio.sleep(0.005)
            while len(received) < sent:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        receiving.cancel()
    assert received == Counter(range(sent))
    return events


def assert_planned(events: list[Event]) -> None:
    assert {event.kind for event in events if isinstance(event, Disconnected)} == {LossKind.RENEWAL}
    assert not [event for event in events if isinstance(event, AttemptFailed)]


async def test_rabbitmq_4_takes_a_token_as_the_password_and_it_is_renewed(
    rabbit: RabbitMQ, keycloak: Keycloak
) -> None:
    url = f"amqp://{rabbit.nodes[0].address}"
    assert_planned(await no_message_is_lost_or_doubled(url, address("q"), keycloak.credentials()))


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "XOAUTH2", "PLAIN"])
async def test_the_pair_takes_tokens_of_keycloak_and_they_are_renewed(
    mechanism: str, pair: Member, keycloak: Keycloak
) -> None:
    url = f"{pair.url}?sasl_mechanisms={mechanism}"
    assert_planned(await no_message_is_lost_or_doubled(url, f"q-{mechanism}", keycloak.credentials()))


async def test_broker_j_takes_a_token_by_xoauth2_and_it_is_renewed(
    broker_j: OneBrokerJ, keycloak: Keycloak
) -> None:
    """It asks Keycloak's user-info endpoint, which wants the scope openid."""
    credentials = keycloak.credentials(scope="openid")
    assert_planned(await no_message_is_lost_or_doubled(broker_j.url, "q", credentials))


async def test_broker_j_refuses_what_keycloak_does_not_know(
    broker_j: OneBrokerJ, keycloak: Keycloak, strangers: IdentityProvider
) -> None:
    for token in (strangers.token(), keycloak.credentials()().value, "opaque"):
        with pytest.raises(AuthenticationFailed) as caught:
            await aio.connect(broker_j.url, credentials=Token(token))
        assert caught.value.code == "token-refused"


async def test_a_broker_that_ends_an_expired_connection_gets_a_new_token(
    rabbit: RabbitMQ, keycloak: Keycloak
) -> None:
    """RabbitMQ ends the connection itself if the application supplies the same token for too long."""
    events, supply = list[Event](), keycloak.credentials()
    token = supply()

    def same_for_long() -> Token:
        ended = any(isinstance(event, Disconnected) for event in events)
        return keycloak.credentials()() if ended else token

    url = f"amqp://{rabbit.nodes[0].address}"
    async with aio.connect(url, credentials=same_for_long, on_event=events.append) as connection:
        sender = await connection.create_sender(address("q"))
        async with asyncio.timeout(120):
            while not any(isinstance(event, Reconnected) for event in events):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await sender.send("after", timeout=30)).accepted
    (lost,) = [event for event in events if isinstance(event, Disconnected)]
    assert lost.condition == "amqp:unauthorized-access"


@pytest.mark.parametrize(
    "claims", [{"aud": "others"}, {"exp": 1}, {}], ids=["audience", "expired", "signature"]
)
async def test_rabbitmq_4_refuses_what_is_none_of_its_tokens(
    claims: dict[str, object], rabbit: RabbitMQ, strangers: IdentityProvider
) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        await aio.connect(f"amqp://{rabbit.nodes[0].address}", credentials=Token(strangers.token(**claims)))
    assert caught.value.code == "token-refused"
    assert "issuer 'https://issuer.example.test'" in str(caught.value)


async def test_a_program_without_its_secret_gets_no_token(keycloak: Keycloak, pair: Member) -> None:
    with pytest.raises(TokenRequestError, match="Invalid client"):
        await aio.connect(pair.url, credentials=keycloak.credentials("wrong"))
