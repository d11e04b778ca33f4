"""A listener that requires client certificates: hand-written bytes, to real processes and to one here."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from proton import SASL

from broker_stub.admission.auth import Auth
from broker_stub.admission.user_file import write_users
from broker_stub.broker import Broker
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.sasl import frames as sasl_frames
from haclient.engine.tls import TlsFileError, TlsFiles, server_context
from tests.broker_stub.admission.test_sasl_required import (
    AMQP_HEADER,
    ANONYMOUS,
    CLOSE,
    OPEN,
    SASL_HEADER,
    _frame,
    answer,
)
from tests.broker_stub.clients import member, running
from tests.certificates import Authority

RESPONSE = _frame(0x43, b"\xa0\x00", kind=1)
OK, REFUSED = sasl_frames.outcome(SASL.OK), sasl_frames.outcome(SASL.AUTH)
MECHANISMS = b"\x00\x53\x40"
NAME = b"CN=carol"


def external(authority: bytes | None = b"") -> bytes:
    """Encode the frame of a client that chooses EXTERNAL."""
    authorization = b"\x40" if authority is None else b"\xa0" + bytes((len(authority),)) + authority
    return _frame(0x41, b"\xa3\x08EXTERNAL", authorization, kind=1)


def files_of(authority: Authority) -> TlsFiles:
    certificate = authority.issue("127.0.0.1")
    return TlsFiles(certificate=str(certificate.chain), key=str(certificate.key), ca=str(authority.file))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def carol(authority: Authority) -> ssl.SSLContext:
    """Return the TLS context of a client with a certificate."""
    mine = authority.issue("carol@example.test", common_name="carol")
    context = authority.client_context()
    context.load_cert_chain(mine.chain, mine.key)
    return context


@asynccontextmanager
async def exacting(authority: Authority, auth: Auth | None = None) -> AsyncIterator[Broker]:
    async with running(auth=auth or Auth(external=True, anonymous=False), tls=files_of(authority)) as broker:
        yield broker


@asynccontextmanager
async def exacting_process(folder: Path, authority: Authority, *, users: bool) -> AsyncIterator[Endpoint]:
    files = files_of(authority)
    given = [
        "--tls-cert",
        str(files.certificate),
        "--tls-key",
        str(files.key),
        "--tls-client-ca",
        str(files.ca),
    ]
    if users:
        write_users(folder / "users", {"alice": "wonder"})
        given += ["--users", str(folder / "users")]
    async with member(folder, "--role", "primary", *given) as address:
        yield address


OUT_OF_ORDER = {
    "no mechanism": SASL_HEADER + _frame(0x41, kind=1),
    "a mechanism that is null": SASL_HEADER + _frame(0x41, b"\x40", kind=1),
    "a mechanism that is empty": SASL_HEADER + _frame(0x41, b"\xa3\x00", kind=1),
    "a mechanism that is no text": SASL_HEADER + _frame(0x41, b"\xa3\x05PLA\xbf\x00", kind=1),
    "response first": SASL_HEADER + RESPONSE,
    "two choices": SASL_HEADER + ANONYMOUS + ANONYMOUS,
    "SASL again after its outcome": SASL_HEADER + ANONYMOUS + SASL_HEADER + RESPONSE,
    "SASL again after a name": SASL_HEADER + external() + SASL_HEADER + RESPONSE,
    "a response after a name": SASL_HEADER + external() + RESPONSE,
    "SASL within AMQP": AMQP_HEADER + RESPONSE,
}


@pytest.mark.parametrize("users", [False, True], ids=["certificates", "certificates and users"])
async def test_no_bytes_of_a_stranger_end_a_member_that_requires_certificates(
    tmp_path: Path, authority: Authority, carol: ssl.SSLContext, *, users: bool
) -> None:
    """The first of them crashed the process, without TLS and within it."""
    async with exacting_process(tmp_path, authority, users=users) as address:
        for sent in OUT_OF_ORDER.values():
            for context in (None, authority.client_context(), carol):
                answered = await answer(address, context, sent)
                assert context is not None or b"AMQP" not in answered
        answered = await answer(address, carol, SASL_HEADER + external() + AMQP_HEADER + OPEN + CLOSE)
        assert answered.count(AMQP_HEADER) == 1


@pytest.mark.parametrize(
    "header", [SASL_HEADER, AMQP_HEADER, b"AMQP\x02\x01\x00\x00"], ids=["sasl", "amqp", "tls"]
)
async def test_a_listener_with_tls_offers_nothing_in_clear_text(authority: Authority, header: bytes) -> None:
    async with exacting(authority) as broker:
        answered = await answer(broker.address, None, header + ANONYMOUS)
        assert MECHANISMS not in answered
        assert not answered.startswith(b"AMQP")


async def test_a_client_without_a_certificate_is_offered_nothing(authority: Authority) -> None:
    async with exacting(authority) as broker:
        assert await answer(broker.address, authority.client_context(), SASL_HEADER + external()) == b""


async def test_a_certificate_of_another_authority_is_no_name(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "other").issue("carol@example.test", common_name="carol")
    context = authority.client_context()
    context.load_cert_chain(stranger.chain, stranger.key)
    async with exacting(authority) as broker:
        assert await answer(broker.address, context, SASL_HEADER + external()) == b""


@pytest.mark.parametrize("minimum", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_name_is_the_subject_with_each_version_of_tls(
    authority: Authority, carol: ssl.SSLContext, minimum: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    carol.minimum_version = carol.maximum_version = minimum
    users = []
    async with exacting(authority) as broker:
        decide = broker.decide
        broker.decide = lambda client: users.append(client.user) or decide(client)  # type: ignore[method-assign]
        await answer(broker.address, carol, SASL_HEADER + external() + AMQP_HEADER + OPEN + CLOSE)
    [user] = users
    assert "CN=carol" in user.split(",")


@pytest.mark.parametrize("asked", [None, b"", "own"], ids=["nothing", "an empty name", "the own name"])
async def test_a_client_may_ask_for_its_own_name(
    authority: Authority, carol: ssl.SSLContext, asked: bytes | str | None
) -> None:
    async with exacting(authority) as broker:
        decide, users = broker.decide, []
        broker.decide = lambda client: users.append(client.user) or decide(client)  # type: ignore[method-assign]
        await answer(broker.address, carol, SASL_HEADER + external() + AMQP_HEADER + OPEN + CLOSE)
        wanted = users[0].encode() if isinstance(asked, str) else asked
        answered = await answer(
            broker.address, carol, SASL_HEADER + external(wanted) + AMQP_HEADER + OPEN + CLOSE
        )
        assert OK in answered
        assert users == [users[0]] * 2


async def test_a_client_may_not_ask_for_the_name_of_another(
    authority: Authority, carol: ssl.SSLContext
) -> None:
    async with exacting(authority) as broker:
        answered = await answer(
            broker.address, carol, SASL_HEADER + external(b"cluster-admin") + AMQP_HEADER + OPEN
        )
        assert answered.endswith(REFUSED)


async def test_a_mechanism_that_was_not_offered_is_refused(
    authority: Authority, carol: ssl.SSLContext
) -> None:
    async with exacting(authority) as broker:
        answered = await answer(broker.address, carol, SASL_HEADER + ANONYMOUS + AMQP_HEADER + OPEN)
        assert b"EXTERNAL" in answered
        assert answered.endswith(REFUSED)


async def test_sasl_may_arrive_byte_by_byte(authority: Authority, carol: ssl.SSLContext) -> None:
    sent = SASL_HEADER + external() + AMQP_HEADER + OPEN + CLOSE
    async with exacting(authority) as broker:
        parts = [sent[at : at + 1] for at in range(len(sent))]
        assert AMQP_HEADER in await answer(broker.address, carol, *parts)


def test_an_authority_that_cannot_be_read_is_named(authority: Authority, tmp_path: Path) -> None:
    certificate = authority.issue("127.0.0.1")
    files = TlsFiles(
        certificate=str(certificate.chain), key=str(certificate.key), ca=str(tmp_path / "none.pem")
    )
    with pytest.raises(TlsFileError, match=r"none\.pem") as raised:
        server_context(files)
    assert raised.value.field == "ca"
