"""TLS against real members: accepted certificates, and allowed targets of redirects."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import proton
import pytest
from cryptography.hazmat.primitives import serialization

import haclient
from haclient import Message, aio
from haclient.core.failures import REDIRECT
from haclient.discovery.evidence import FailureReason
from haclient.errors import ClusterURLError, ConnectionGaveUp, TLSVerificationFailed
from haclient.events import AttemptFailed, AttemptStarted, BackingOff, Event, Reconnected, Redirected
from haclient.testing.peers.listening import PeerEngine, listening
from haclient.testing.peers.passive import speaking
from tests.certificates import Authority
from tests.failover.tls_front import tls_front
from tests.failover.waiting import next_of
from tests.members import Member, Members
from tests.peers import Peer
from tests.peers.watch import Watch

OPTIONS = "backoff_base=0.01&backoff_max=0.1"


def started(events: list[Event]) -> list[str]:
    """Return the dialled endpoints."""
    return [str(event.endpoint) for event in events if isinstance(event, AttemptStarted)]


def secure(member: Member, authority: Authority, host: str = "127.0.0.1", more: str = "") -> str:
    """Return the URL of a member with TLS."""
    return f"amqps://{host}:{member.endpoint.port}?tls_ca={authority.file}&{OPTIONS}{more}"


async def refused(url: str, **arguments: object) -> tuple[TLSVerificationFailed, list[Event]]:
    """Return the error of a connect that must fail at once for the certificate."""
    events = list[Event]()
    with pytest.raises(TLSVerificationFailed) as raised:
        await aio.connect(url, on_event=events.append, **arguments)
    assert not any(isinstance(event, BackingOff) for event in events)
    assert [record.failure.kind for record in raised.value.attempts] == [FailureReason.TLS_VERIFICATION]
    assert len(started(events)) == 1
    assert not raised.value.connection_usable
    return raised.value, events


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"], ids=["host name", "address"])
async def test_a_member_whose_certificate_has_the_written_name_is_accepted(
    name: str, members: Members, authority: Authority
) -> None:
    member = members.start("primary", role="primary", certificate=authority.issue(name))
    async with aio.connect(secure(member, authority, name)) as connection:
        sender = await connection.create_sender("orders")
        assert (await sender.send(Message(body="safe"), timeout=10)).accepted
        assert connection.endpoint is not None
        assert connection.endpoint.tls


@pytest.mark.parametrize(
    ("certified", "written"),
    [("localhost", "127.0.0.1"), ("127.0.0.1", "localhost"), ("127.0.0.2", "127.0.0.1")],
)
async def test_a_member_whose_certificate_has_another_name_is_refused_without_a_retry(
    certified: str, written: str, members: Members, authority: Authority
) -> None:
    member = members.start("primary", role="primary", certificate=authority.issue(certified))
    error, _ = await refused(secure(member, authority, written, "&redirects=none"))
    assert "mismatch" in str(error)
    assert written in str(error)


def test_the_blocking_api_refuses_another_name_too(members: Members, authority: Authority) -> None:
    member = members.start("primary", role="primary", certificate=authority.issue("elsewhere.test"))
    with pytest.raises(TLSVerificationFailed, match="mismatch"):
        haclient.connect(secure(member, authority))


async def test_an_authority_that_is_not_trusted_is_refused(
    members: Members, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    member = members.start("primary", role="primary", certificate=authority.issue("127.0.0.1"))
    await refused(secure(member, other))


async def test_the_authorities_of_the_system_do_not_vouch_for_a_member_of_our_own(
    members: Members, authority: Authority
) -> None:
    member = members.start("primary", role="primary", certificate=authority.issue("127.0.0.1"))
    await refused(f"{member.url}?{OPTIONS}")


async def test_an_expired_certificate_is_refused(members: Members, authority: Authority) -> None:
    certificate = authority.issue("127.0.0.1", expired=True)
    member = members.start("primary", role="primary", certificate=certificate)
    error, _ = await refused(secure(member, authority))
    assert "expired" in str(error)


async def test_one_bad_certificate_does_not_keep_the_client_from_the_primary(
    members: Members, authority: Authority
) -> None:
    wrong = members.start("wrong", role="primary", certificate=authority.issue("elsewhere.test"))
    right = members.start("right", role="primary", certificate=authority.issue("127.0.0.1"))
    url = f"amqps://{wrong.address},{right.address}?tls_ca={authority.file}&{OPTIONS}"
    async with aio.connect(url) as connection:
        assert connection.endpoint == right.endpoint


async def test_without_verification_any_certificate_is_accepted(
    members: Members, authority: Authority
) -> None:
    certificate = authority.issue("elsewhere.test", expired=True)
    member = members.start("primary", role="primary", certificate=certificate)
    async with aio.connect(f"{member.url}?tls_verify=false&{OPTIONS}") as connection:
        assert connection.endpoint == member.endpoint


async def test_the_name_to_verify_can_be_another_than_the_host(
    members: Members, authority: Authority
) -> None:
    member = members.start("primary", role="primary", certificate=authority.issue("cluster.test"))
    url = secure(member, authority, more="&tls_server_name=cluster.test")
    async with aio.connect(url) as connection:
        assert connection.endpoint == member.endpoint


async def test_a_context_of_the_application_decides_instead_of_the_options(
    members: Members, authority: Authority
) -> None:
    member = members.start("primary", role="primary", certificate=authority.issue("127.0.0.1"))
    context = authority.client_context()
    async with aio.connect(f"{member.url}?{OPTIONS}", ssl_context=context) as connection:
        assert connection.endpoint == member.endpoint
    strict = ssl.create_default_context()
    await refused(secure(member, authority), ssl_context=strict)


# -- mistakes of the user -------------------------------------------------------------------------


async def test_tls_to_a_plain_listener_and_plain_to_a_tls_listener_are_distinguished_from_bad_certificates(
    members: Members, authority: Authority
) -> None:
    plain = members.start("plain", role="primary")
    safe = members.start("safe", role="primary", certificate=authority.issue("127.0.0.1"))
    for url in (secure(plain, authority), f"amqp://{safe.address}?{OPTIONS}"):
        with pytest.raises(ConnectionGaveUp) as raised:
            await aio.connect(f"{url}&max_attempts=1")
        kinds = {record.failure.kind for record in raised.value.attempts}
        assert kinds <= {FailureReason.TLS_FAILED, FailureReason.NOT_AMQP, FailureReason.ENDED}, raised.value


@pytest.mark.parametrize("option", ["tls_ca", "tls_cert"])
@pytest.mark.parametrize("contents", [None, "not PEM"], ids=["no file", "no certificate"])
def test_a_file_that_cannot_be_used_is_an_error_at_once_that_names_the_option(
    option: str, contents: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "certificate.pem"
    if contents is not None:
        file.write_text(contents)
    with pytest.raises(ClusterURLError) as raised:
        aio.ConnectionFactory(f"amqps://127.0.0.1?{option}={file}")
    assert raised.value.option == option
    assert str(file) in str(raised.value)


def test_a_key_that_wants_a_password_is_an_error_and_not_a_question_at_the_terminal(
    authority: Authority, tmp_path: Path
) -> None:
    mine = authority.issue("app@example.test")
    key = tmp_path / "locked.key"
    secret = serialization.load_pem_private_key(mine.key.read_bytes(), None)
    key.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"locked"),
        )
    )
    with pytest.raises(ClusterURLError) as raised:
        aio.ConnectionFactory("amqps://127.0.0.1", tls_cert=str(mine.chain), tls_key=str(key))
    assert raised.value.option == "tls_cert"


# -- redirects ------------------------------------------------------------------------------------


async def test_a_redirect_within_tls_is_followed(members: Members, authority: Authority) -> None:
    primary, passive = members.pair(certificate=authority.issue("127.0.0.1"))
    async with aio.connect(secure(passive, authority)) as connection:
        assert connection.endpoint == primary.endpoint
        assert connection.endpoint is not None
        assert connection.endpoint.tls


async def test_a_redirect_from_tls_to_plain_is_refused_and_the_listed_primary_is_reached_by_tls(
    members: Members, authority: Authority
) -> None:
    certificate, events = authority.issue("127.0.0.1"), list[Event]()
    plain = members.start("plain", role="primary")
    passive = members.start("passive", primary=f"amqp://{plain.address}", certificate=certificate)
    primary = members.start("primary", role="primary", certificate=certificate)
    url = f"amqps://{passive.address},{primary.address}?tls_ca={authority.file}&{OPTIONS}"
    async with aio.connect(url, on_event=events.append) as connection:
        assert connection.endpoint == primary.endpoint
    (redirected,) = [event for event in events if isinstance(event, Redirected)]
    assert (redirected.target, redirected.followed) == (plain.endpoint, False)
    (failed,) = [event.record for event in events if isinstance(event, AttemptFailed)]
    assert (failed.endpoint, failed.failure.kind) == (passive.endpoint, FailureReason.REDIRECT_REFUSED)
    assert "no TLS" in failed.failure.detail
    assert str(plain.endpoint) not in started(events)


async def test_a_primary_cannot_send_its_clients_from_tls_to_plain_when_it_is_demoted(
    members: Members, authority: Authority
) -> None:
    certificate, events = authority.issue("127.0.0.1"), list[Event]()
    plain = members.start("plain", role="primary", generation=2)
    old = members.start("old", role="primary", certificate=certificate)
    new = members.start("new", primary=old.url, generation=1, certificate=certificate)
    url = f"amqps://{old.address},{new.address}?tls_ca={authority.file}&{OPTIONS}"
    async with aio.connect(url, on_event=events.append) as connection:
        live = connection.events()
        await asyncio.to_thread(new.promote)
        await asyncio.to_thread(old.demote, plain)
        await next_of(live, Reconnected)
        assert connection.endpoint == new.endpoint
    assert str(plain.endpoint) not in started(events)
    assert any(event.target == plain.endpoint for event in events if isinstance(event, Redirected))
    assert not any(event.followed for event in events if isinstance(event, Redirected))


@pytest.mark.parametrize("certified", ["primary.test", "elsewhere.test"])
async def test_after_a_redirect_its_hostname_is_asked_for_and_verified(
    certified: str, members: Members, authority: Authority
) -> None:
    member = members.start("primary", role="primary")
    events = list[Event]()
    async with tls_front(authority.issue(certified), member.address) as front:
        info = {"network-host": front.host, "port": front.port, "hostname": "primary.test", "scheme": "amqps"}
        own = authority.issue("127.0.0.1")
        async with redirecting_to(info) as behind, tls_front(own, behind.address) as passive:
            url = f"amqps://{passive.address}?tls_ca={authority.file}&{OPTIONS}&startup_deadline=5"
            connecting = aio.connect(url, on_event=events.append)
            if certified == "primary.test":
                async with connecting as connection:
                    assert connection.endpoint is not None
                    assert connection.endpoint.port == front.port
                    assert connection.generation == 1
            else:
                with pytest.raises(TLSVerificationFailed, match=r"primary\.test"):
                    await connecting
        assert front.names == ["primary.test"]
        # For an address the client sends no name: RFC 6066, section 3.
        assert passive.names == [None]


def redirecting_to(info: dict[str, object]) -> AbstractAsyncContextManager[Peer]:
    """Start a peer without TLS that redirects there."""
    wire = {proton.symbol(key): value for key, value in info.items()}

    def refuse(engine: PeerEngine) -> None:
        engine.open()
        engine.close(proton.Condition(REDIRECT, "elsewhere", wire))

    return speaking(refuse)


# -- EXTERNAL -------------------------------------------------------------------------------------


@pytest.fixture
def exacting(members: Members, authority: Authority) -> Member:
    """A member that requires a client certificate, and accepts it as authentication."""
    certificate = authority.issue("localhost", "127.0.0.1")
    options = {"clients": authority, "anonymous": False, "log_level": "debug", "users": {"app": "its word"}}
    return members.start("primary", role="primary", certificate=certificate, **options)


def with_certificate(authority: Authority, mechanisms: str = "EXTERNAL") -> str:
    """Return the options of a client that shows a certificate."""
    mine = authority.issue("app@example.test", common_name="app")
    return f"&sasl_mechanisms={mechanisms}&tls_cert={mine.chain}&tls_key={mine.key}"


class Stranger(asyncio.Protocol):
    """Accepts any connection and is silent."""

    def __init__(self, met: asyncio.Event) -> None:
        self._met = met

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._met.set()


@pytest.mark.parametrize("mechanisms", ["EXTERNAL", "ANONYMOUS"])
async def test_a_client_certificate_is_not_shown_to_a_stranger_that_a_member_redirects_to(
    mechanisms: str, members: Members, authority: Authority
) -> None:
    """The redirecting member itself was verified; the option allows more."""
    met, watch = asyncio.Event(), Watch()
    async with listening(lambda _: Stranger(met)) as stranger:
        passive = members.start(
            "passive",
            primary=f"amqps://{stranger.address}",
            certificate=authority.issue("localhost", "127.0.0.1"),
            clients=authority,
            anonymous=mechanisms == "ANONYMOUS",
        )
        url = secure(passive, authority, "localhost", with_certificate(authority, mechanisms))
        connecting = asyncio.ensure_future(aio.connect(url, on_event=watch))
        (first,) = await watch.until(Redirected)
        assert (first.target.port, first.followed) == (stranger.port, False)
        assert "nor a client certificate" in first.detail
        connecting.cancel()
        assert not met.is_set()
        connecting = asyncio.ensure_future(aio.connect(f"{url}&redirects=any"))
        await asyncio.wait_for(met.wait(), 20)
        connecting.cancel()


async def test_a_client_certificate_proves_who_the_client_is(exacting: Member, authority: Authority) -> None:
    url = secure(exacting, authority, "localhost", with_certificate(authority))
    async with aio.connect(url) as connection:
        sender = await connection.create_sender("orders")
        assert (await sender.send(Message(body="mine"), timeout=10)).accepted
    await asyncio.to_thread(exacting.stop)
    assert "CN=app" in exacting.log.read_text()


async def test_a_client_certificate_of_another_authority_is_refused(
    exacting: Member, authority: Authority, tmp_path: Path
) -> None:
    foreign = with_certificate(Authority(tmp_path / "other"))
    with pytest.raises(ConnectionGaveUp) as raised:
        await aio.connect(secure(exacting, authority, "localhost", f"{foreign}&max_attempts=2"))
    assert {record.failure.kind for record in raised.value.attempts} <= {
        FailureReason.TLS_FAILED,
        FailureReason.ENDED,
    }


async def test_a_member_with_another_name_is_refused_before_the_client_authenticates(
    members: Members, authority: Authority
) -> None:
    certificate = authority.issue("elsewhere.test")
    member = members.start("primary", role="primary", certificate=certificate, clients=authority)
    await refused(secure(member, authority, "localhost", with_certificate(authority)))


async def test_an_address_is_verified_with_external_too(exacting: Member, authority: Authority) -> None:
    url = secure(exacting, authority, "127.0.0.1", with_certificate(authority))
    async with aio.connect(url) as connection:
        assert connection.endpoint == exacting.endpoint


@pytest.mark.slow
@pytest.mark.parametrize("mechanisms", ["none", "SCRAM-SHA-256", "PLAIN", "EXTERNAL,PLAIN"])
async def test_a_client_certificate_and_a_password_go_together(
    mechanisms: str, exacting: Member, authority: Authority
) -> None:
    url = secure(exacting, authority, more=with_certificate(authority, mechanisms))
    async with aio.connect(
        url, credentials=haclient.Credentials(user="app", password="its word")
    ) as connection:
        assert connection.endpoint == exacting.endpoint


async def test_external_takes_the_certificate_of_the_applications_context(
    exacting: Member, authority: Authority
) -> None:
    mine, context = authority.issue("app"), authority.client_context()
    context.load_cert_chain(mine.chain, mine.key)
    url = f"amqps://{exacting.address}?sasl_mechanisms=EXTERNAL"
    async with aio.connect(url, ssl_context=context) as connection:
        assert connection.endpoint == exacting.endpoint
