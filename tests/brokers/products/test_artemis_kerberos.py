"""Kerberos at Artemis, whose side of GSSAPI is Java's own, and not MIT's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from haclient import aio
from haclient.errors import AuthenticationFailed
from haclient.events import Connected, Event, Reconnected
from tests import kdc
from tests.brokers.products import installed
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kerberos, Kind, Settings
from tests.brokers.topology import Launch
from tests.kdc import Realm

_MISSING = installed.missing("Artemis", installed.ARTEMIS) or kdc.missing()
pytestmark = [
    pytest.mark.brokers,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "it is there"),
]


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Realm:
    realm = Realm(tmp_path / "realm")
    realm.use(monkeypatch)
    return realm


@pytest.fixture
async def artemis(tmp_path: Path, realm: Realm) -> AsyncIterator[Artemis]:
    with realm:
        keytab = tmp_path / "realm" / "members.keytab"
        launch, settings = Launch(tmp_path / "artemis"), Settings(kerberos=Kerberos(realm.config, keytab))
        cluster = Artemis(Kind.SINGLE, launch, settings)
        host = cluster.members[0].endpoint.host
        realm.service(f"amqp/{host}").rename(keytab)
        try:
            await cluster.start()
            yield cluster
        finally:
            await cluster.stop()


async def test_a_user_of_the_realm_sends_and_receives_and_another_client_is_refused(
    artemis: Artemis, realm: Realm
) -> None:
    """All checks share one broker, since each start takes seconds."""
    endpoint, events = artemis.members[0].endpoint, list[Event]()
    url = f"amqp://{endpoint.authority}?sasl_mechanisms=GSSAPI"
    realm.log_in()
    for named in (url, f"amqp://alice@{endpoint.authority}?sasl_mechanisms=GSSAPI,PLAIN"):
        async with aio.connect(named, on_event=events.append, timeout=30) as connection:
            sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
            assert (await sender.send("hello", timeout=30)).accepted
            delivery = await receiver.receive(timeout=30)
            assert delivery.message.body == "hello"
            await delivery.accept()
    assert sum(isinstance(event, Connected) for event in events) == 2

    async def refusal(url: str) -> str:
        with pytest.raises(AuthenticationFailed) as caught:
            await aio.connect(url, timeout=30)
        return str(caught.value)

    assert f"Server amqp/localhost@{kdc.REALM} not found" in await refusal(f"{url}&tls_server_name=localhost")
    realm.log_out()
    assert "No Kerberos credentials available" in await refusal(url)

    realm.write_client_keytab("carol")
    async with aio.connect(url, timeout=30) as connection:
        assert (await (await connection.create_sender("q")).send("by carol", timeout=30)).accepted
    realm.log_out()
    realm.change_key("carol")
    assert f"no ticket for amqp@{endpoint.host}: " in await refusal(url)


async def test_a_lost_connection_comes_back_with_the_ticket_of_that_time(
    artemis: Artemis, realm: Realm
) -> None:
    events, refused = list[Event](), asyncio.Event()

    def note(event: Event) -> None:
        events.append(event)
        if "No Kerberos credentials available" in str(event):
            refused.set()

    realm.log_in()
    url = f"amqp://{artemis.members[0].endpoint.authority}?sasl_mechanisms=GSSAPI"
    async with aio.connect(url, on_event=note, timeout=30) as connection:
        sender = await connection.create_sender("q")
        realm.log_out()
        process = artemis.members[0].process
        await process.kill()
        process.start()
        async with asyncio.timeout(60):
            await refused.wait()
        realm.log_in()
        assert (await sender.send("after", timeout=60)).accepted
    assert any(isinstance(event, Reconnected) for event in events)
