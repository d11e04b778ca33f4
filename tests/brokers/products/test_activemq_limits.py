"""Limits that ActiveMQ Classic does not announce: its message size, its connections, its rate of setups.

Only the message above its maxFrameSize fails. Many connections of one process together take longer to set
up than one attempt may last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from haclient import aio
from haclient.discovery.evidence import FailureReason
from haclient.errors import HaclientError, MessageTooLarge
from haclient.events import Connected, Disconnected
from haclient.testing.threads import in_thread
from tests.brokers import clusters
from tests.brokers.application import running
from tests.brokers.products.activemq import ActiveMQ
from tests.brokers.products.connection_limit import check_that_it_is_named
from tests.brokers.products.member_process import MemberProcess
from tests.brokers.topology import Launch
from tests.certificates import Authority, Certificate
from tests.peers.watch import Watch

_MISSING = clusters.missing("activemq")
pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING),
    pytest.mark.timeout(300),
]
_MAX_FRAME_SIZE = 1024 * 1024
_CLIENTS = 300
_OPTIONS = "attempt_timeout=1&backoff_base=0.1"
_PASSWORD = "of the store"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[ActiveMQ]:
    """Brokers with a limit of the frame size, whose second port (``few``) takes TLS."""
    folder = tmp_path_factory.mktemp("activemq")
    store = folder / "server.p12"
    cluster = ActiveMQ(
        Launch(folder),
        f'<sslContext><sslContext keyStore="file:{store}" keyStorePassword="{_PASSWORD}"'
        ' keyStoreType="PKCS12"/></sslContext>',
    )
    store.write_bytes(_key_store(authority.issue(*(each.host for each in cluster.few))))
    for file in folder.glob("member-*/activemq.xml"):
        limit = f"wireFormat.maxFrameSize={_MAX_FRAME_SIZE}&amp;maximumConnections="
        text = file.read_text().replace("maximumConnections=", limit)
        file.write_text(text.replace('name="few" uri="amqp:', 'name="few" uri="amqp+ssl:'))
    with in_thread(running("activemq", cluster)):
        yield cluster


def _key_store(issued: Certificate) -> bytes:
    """Return a PKCS12 store, which Java reads, of a certificate and its key."""
    chain = x509.load_pem_x509_certificates(issued.chain.read_bytes())
    key = serialization.load_pem_private_key(issued.key.read_bytes(), None)
    return pkcs12.serialize_key_and_certificates(
        b"server",
        cast("pkcs12.PKCS12PrivateKeyTypes", key),
        chain[0],
        chain[1:],
        serialization.BestAvailableEncryption(_PASSWORD.encode()),
    )


async def test_a_message_above_its_limit_fails_alone_among_others_after_three_losses(
    broker: ActiveMQ,
) -> None:
    watch = Watch()
    async with await aio.connect(broker.url, on_event=watch) as connection:
        sender = await connection.create_sender("large")
        bodies = [bytes((number,)) * (3 * _MAX_FRAME_SIZE if number == 20 else 1000) for number in range(40)]
        futures = [await sender.submit(body) for body in bodies]
        async with asyncio.timeout(60):
            results = await asyncio.gather(*futures, return_exceptions=True)
    errors = {number: each for number, each in enumerate(results) if isinstance(each, HaclientError)}
    assert list(errors) == [20]
    assert isinstance(errors[20], MessageTooLarge)
    assert "amqp:decode-error" in str(errors[20])
    assert errors[20].delivered is None
    assert len(watch.of(Disconnected)) == 3


async def test_a_connection_beyond_the_limit_of_a_tls_port_fails_with_a_text_that_names_it(
    broker: ActiveMQ, authority: Authority
) -> None:
    few = broker.few[broker.members.index(await broker.group.primary())]
    await check_that_it_is_named(f"amqps://{few.authority}?tls_ca={authority.file}")


async def _slow_down(process: MemberProcess) -> None:
    """Let the process run a tenth of the time, as on an undersized machine."""
    try:
        while True:
            process.pause()
            await asyncio.sleep(0.09)
            process.resume()
            await asyncio.sleep(0.01)
    finally:
        process.resume()


async def test_few_attempts_are_given_up_at_a_broker_that_is_slow(broker: ActiveMQ) -> None:
    watch = Watch()
    primary = await broker.group.primary()
    assert isinstance(primary.process, MemberProcess)
    url = f"amqp://{primary.endpoint.authority}/?{_OPTIONS}"
    slow = asyncio.create_task(_slow_down(primary.process))
    try:
        connecting = (aio.connect(url, on_event=watch, client_id=f"c{each}") for each in range(_CLIENTS))
        connections = await asyncio.wait_for(asyncio.gather(*connecting), 120)
    finally:
        slow.cancel()
    await watch.until(Connected, count=_CLIENTS)
    await asyncio.gather(*(connection.close() for connection in connections))
    # 90 to 380, by load; 1,600 if neither answers nor failures lengthen the time of an attempt.
    assert watch.kinds().count(FailureReason.TIMED_OUT) <= 2 * _CLIENTS
